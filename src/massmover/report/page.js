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

  // An image on its way from the original to the example.
  //   t = 0: the original. t = 1: the example. Between: the stored moves fly along straight lines, so that t of their
  //   cost is spent, and what they do not explain of the change fades in. Both ends are exact to 8 bits.
  const sheet = (columns, rows) => Object.assign(document.createElement("canvas"), { width: columns, height: rows });
  const pixels = (image, rows, columns) => {
    const context = sheet(columns, rows).getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, columns, rows).data;
  };
  const ORANGE = [240, 110, 20];
  class Morph {
    constructor(place) {
      this.canvas = one("canvas", place);
      this.slider = one("input[type=range]", place);
      this.verdict = one(".verdict", place);
      this.spent = one(".spent", place);
      this.which = one(".which", place);
      this.far = one(".far", place);
      this.button = one(".play", place);
      this.slider.addEventListener("input", () => { this.stop(); this.draw(); });
      this.button.addEventListener("click", () => (this.timer ? this.stop() : this.play()));
    }
    async show(card, at) {
      this.stop();
      this.card = card;
      const images = [one(".original", card), one(".adversarial", card)];
      await Promise.all(images.map((image) => image.decode().catch(() => {})));
      if (this.card !== card) return;
      const rows = (this.rows = Number(card.dataset.rows)), columns = (this.columns = Number(card.dataset.columns));
      const [before, after] = images.map((image) => pixels(image, rows, columns));
      const channels = Number(card.dataset.channels);
      this.colour = channels === 3;
      this.moves = card.dataset.moves.split(";").filter(Boolean).map((move) => move.split(",").map(Number));
      if (!this.colour) for (const move of this.moves) move[5] /= channels;  // shown as the mean of its channels
      this.ground = Float32Array.from(before);
      this.rest = Float32Array.from(after, (value, place) => value - before[place]);
      for (const [channel, y, x, toY, toX, mass] of this.moves) {
        for (const part of this.colour ? [channel] : [0, 1, 2]) {
          const from = 4 * (y * columns + x) + part, to = 4 * (toY * columns + toX) + part;
          this.ground[from] -= 255 * mass;
          this.rest[from] += 255 * mass;
          this.rest[to] -= 255 * mass;
        }
      }
      this.scale = Math.max(1, Math.floor(560 / Math.max(rows, columns)));
      this.canvas.width = columns * this.scale;
      this.canvas.height = rows * this.scale;
      this.small = sheet(columns, rows);
      this.far.textContent = `${short(Number(card.dataset.cost))}, broken`;
      if (this.which) this.which.textContent = one("small", card).textContent.trim();
      this.slider.value = at;
      this.draw();
    }
    draw() {
      const t = Number(this.slider.value) / 1000, { canvas, scale, columns, rows } = this;
      const picture = new ImageData(columns, rows), context = canvas.getContext("2d");
      for (let place = 0; place < picture.data.length; place++) {
        picture.data[place] = place % 4 === 3 ? 255 : this.ground[place] + t * this.rest[place];
      }
      this.small.getContext("2d").putImageData(picture, 0, 0);
      context.globalCompositeOperation = "source-over";
      context.imageSmoothingEnabled = false;
      context.drawImage(this.small, 0, 0, canvas.width, canvas.height);
      const flying = Math.min(1, 6 * t * (1 - t));
      for (const [channel, y, x, toY, toX, mass] of this.moves) {
        const tone = this.colour ? [0, 1, 2].map((part) => (part === channel ? 255 : 0)) : [255, 255, 255];
        // In flight a square is a little smaller than a pixel, so that neighbours on the way can be told apart.
        const side = scale * (1 - 0.25 * flying), edge = (scale - side) / 2;
        const square = [scale * (x + t * (toX - x)) + edge, scale * (y + t * (toY - y)) + edge, side, side];
        context.globalCompositeOperation = "lighter";  // light adds up where it lands
        context.fillStyle = `rgb(${tone.map((value) => Math.round((1 - flying) * value * mass)).join(" ")})`;
        context.fillRect(...square);
        context.globalCompositeOperation = "source-over";
        context.fillStyle = `rgb(${ORANGE.join(" ")} / ${flying * Math.min(1, 0.3 + 0.7 * mass)})`;
        context.fillRect(...square);
      }
      const { before, after, cost } = this.card.dataset, spent = t * Number(cost);
      this.verdict.textContent = t === 1 ? `Taken for ${after}` : t === 0 ? `Seen as ${before}` : `${before} → ${after}, on the way`;
      this.verdict.classList.toggle("broken", t === 1);
      const words = `${short(spent)} of ${short(Number(cost))} radius × pixels spent`;
      this.spent.textContent = `${words} (${Math.round(100 * t)} %)`;
      this.slider.setAttribute("aria-valuetext", words);
    }
    play() {
      const from = Number(this.slider.value) >= 1000 ? 0 : Number(this.slider.value), started = performance.now();
      this.button.textContent = "pause";
      const step = (now) => {
        this.slider.value = Math.min(1000, from + (now - started) / 3);
        this.draw();
        if (Number(this.slider.value) >= 1000) this.stop();
        else this.timer = requestAnimationFrame(step);
      };
      this.timer = requestAnimationFrame(step);
    }
    stop() {
      if (this.timer) cancelAnimationFrame(this.timer);
      this.timer = null;
      this.button.textContent = "play";
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

    // One example, large.
    const large = one("#large"), view = new Morph(large);
    let opened = null;
    const open = (card) => {
      opened = card;
      one("#large-title", large).textContent = `${card.dataset.before} → ${card.dataset.after}, ${one("small", card).textContent.trim()}`;
      const figures = all("figure", card).map((figure) => figure.cloneNode(true));
      for (const figure of figures) figure.removeAttribute("tabindex");
      one(".panels", large).replaceChildren(figures[0], figures[2], figures[3]);
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

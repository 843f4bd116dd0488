"use strict";
(() => {
  // Filter the gallery by class and radius.
  const cards = [...document.querySelectorAll(".card")];
  const chips = [...document.querySelectorAll(".chips .chip")];
  const radius = document.getElementById("radius-choice");
  const shown = document.getElementById("shown");
  const more = document.getElementById("more");
  const AT_ONCE = 12;
  let label = "", limit = AT_ONCE;
  const filter = () => {
    let count = 0, fitting = 0;
    for (const card of cards) {
      const fits = (label === "" || card.dataset.label === label) && (radius.value === "" || card.dataset.radius === radius.value);
      fitting += fits ? 1 : 0;
      card.hidden = !fits || fitting > limit;
      count += card.hidden ? 0 : 1;
    }
    shown.textContent = count < fitting ? `${count} of ${fitting} shown` : `${count} shown`;
    more.hidden = count === fitting;
  };
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      label = chip.dataset.label;
      limit = AT_ONCE;
      for (const other of chips) other.setAttribute("aria-pressed", String(other === chip));
      filter();
    });
  }
  if (cards.length) {
    radius.addEventListener("change", filter);
    more.addEventListener("click", () => { limit += 4 * AT_ONCE; filter(); });
    filter();
  }

  // One confusion table at a time.
  const choice = document.getElementById("confusion-choice");
  const tables = [...document.querySelectorAll(".confusion")];
  choice.addEventListener("change", () => {
    for (const table of tables) table.hidden = table.dataset.table !== choice.value;
  });

  // What lies under the pointer.
  const tip = document.getElementById("tip");
  const place = (event) => {
    const mark = event.target instanceof Element ? event.target.closest(".tip") : null;
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
  };
  document.addEventListener("pointermove", place);
  document.addEventListener("pointerdown", place);
})();

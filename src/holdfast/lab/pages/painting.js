"use strict";
// What the server answered becomes what is seen; `state`, `shown`, `panels` and `told` are those of lab.js.

const INPUT = ["before", "after", "difference"];

function picture(n, part, url) {
  const image = figures[n][part].querySelector(".base");
  if (image.getAttribute("src") !== url) image.src = url;
}

function paint(found) {
  byId("title").textContent = found.title;
  paintChips(found.steps);
  found.panels.forEach((one, n) => {
    const panel = panels[n];
    for (const part of INPUT) picture(n, part, one[part]);
    figures[n].difference.querySelector("figcaption").textContent = `difference × ${one.gain}`;
    panel.querySelectorAll(".pictures").forEach((row) => row.classList.toggle("coarse", Math.max(...one.size) < 160));
    panel.querySelector(".said").innerHTML = one.verdict;
    panel.querySelector(".answers").innerHTML = one.answers;
    panel.querySelector(".numbers-of").innerHTML = one.numbers;
    panel.querySelectorAll(".attention").forEach((figure) => { figure.hidden = !one.attention; });
    panel.classList.toggle("plain", !one.attention && !one.pictures.length);
    draw(panel.querySelector(".drawn"), one.pictures);
  });
  compare(found.panels);
  paintAttention();
  markHidden();
  fillChoices(found.panels.find((one) => one.attention));
  if (state.at) lookAtToken();
}

// of two models: both verdicts in a strip that stays in sight, and the input once where it is the same
function compare(all) {
  if (all.length < 2) return;
  document.querySelectorAll("#verdicts .said").forEach((place, n) => { place.innerHTML = all[n].verdict; });
  const same = all.every((one) => INPUT.every((part) => one[part] === all[0][part]));
  const home = same ? byId("input").querySelector(".pictures") : panels[0].querySelector(".pictures");
  if (figures[0].before.parentElement !== home) home.prepend(...INPUT.map((part) => figures[0][part]));
  byId("input").hidden = !same;
  byId("input").querySelector(".pictures").classList.toggle("coarse", Math.max(...all[0].size) < 160);
  document.body.classList.toggle("same-input", same);
}

// what is done, step by step; a step can be taken back or done earlier
function paintChips(all) {
  const button = (sign, words, action) => {
    const made = document.createElement("button");
    made.type = "button"; made.textContent = sign; made.title = words; made.setAttribute("aria-label", words);
    made.addEventListener("click", action);
    return made;
  };
  byId("chips").replaceChildren(...all.map((one, n) => {
    const chip = document.createElement("li"), rest = () => all.map((each) => each.step);
    chip.append(one.words);
    if (n) chip.append(button("‹", `move ${one.words} forward`, () => { const moved = rest(); moved.splice(n - 1, 0, ...moved.splice(n, 1)); setDo(moved.join(",")); }));
    chip.append(button("×", `remove ${one.words}`, () => setDo(rest().filter((_, m) => m !== n).join(","))));
    return chip;
  }));
}

function draw(place, pictures) {
  place.classList.toggle("few", pictures.length <= 3);
  place.replaceChildren(...pictures.map((one) => {
    const figure = document.createElement("figure"), image = new Image(), text = document.createElement("figcaption");
    const frame = document.createElement("div");
    frame.className = "frame"; image.className = "base"; image.src = one.url; image.alt = one.title;
    text.textContent = one.title;
    frame.append(image); figure.append(frame, text);
    return figure;
  }));
}

function paintAttention() {
  shown?.panels.forEach((one, n) => {
    if (!one.attention) return;
    const where = one.attention.grid ? "received by tokens" : "between channels";
    heats(n, one, one.attention, (part) => `attention ${where}, ${part}`);
    mark(n, null);
  });
}

function paintToken(found) {
  found.panels.forEach((one, n) => {
    if (!one) return;
    heats(n, shown.panels[n], one, (part) => `attention of token ${one.row + 1}, ${one.column + 1}, ${part}`);
    mark(n, one);
  });
  document.body.dataset.token = found.panels.map((one) => one ? `${one.row},${one.column}` : "").join(" ");
}

function heats(n, one, heat, words) {
  for (const part of ["before", "after"]) {
    const figure = figures[n][`attention-${part}`];
    picture(n, `attention-${part}`, one[part]);
    const image = figure.querySelector(".heat");
    if (image.getAttribute("src") !== heat[part]) image.src = heat[part];
    for (const [name, text] of [["what", words(part)], ["low", heat.low], ["high", heat.high]]) figure.querySelector(`.${name}`).textContent = text;
  }
}

const SVG = "http://www.w3.org/2000/svg";

function cells(svg, name, grid, places) {
  svg.querySelectorAll(`.${name}`).forEach((old) => old.remove());
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  for (const [row, column] of places) {
    const rect = document.createElementNS(SVG, "rect");
    const values = { class: name, x: 100 * column / grid[1], y: 100 * row / grid[0], width: 100 / grid[1], height: 100 / grid[0] };
    for (const [key, value] of Object.entries(values)) rect.setAttribute(key, value);
    svg.append(rect);
  }
}

const marksOf = (n, parts) => parts.map((part) => figures[n][part]?.querySelector(".marks")).filter(Boolean);
const mark = (n, token) => marksOf(n, Object.keys(figures[n])).forEach((svg) =>
  cells(svg, "token", token?.grid, token ? [[token.row, token.column]] : []));

function markHidden() {
  const hide = stepOf("hide");
  const { grid, patches } = hide ? hidden(hide) : { grid: told.grid, patches: [] };
  const places = patches.map((n) => [Math.floor(n / grid[1]), n % grid[1]]);
  panels.forEach((_, n) => marksOf(n, ["after"]).forEach((svg) => cells(svg, "hidden", grid, places)));
}

function options(select, count, first, word, value) {
  if (select.dataset.count !== String(count)) {
    select.replaceChildren(...first, ...Array.from({ length: count }, (_, n) => new Option(`${word}${n + 1}`, n)));
    select.dataset.count = count;
  }
  select.value = value;
}

function fillChoices(one) {
  if (!one) return;
  options(byId("layer"), one.attention.layers, [], "", one.attention.layer);
  options(byId("head"), one.attention.heads, [new Option("mean of all", -1)], "", one.attention.head);
}

const markFilm = () => document.querySelectorAll(".film").forEach((film) =>
  film.setAttribute("aria-pressed", film.dataset.image === String(state.image)));

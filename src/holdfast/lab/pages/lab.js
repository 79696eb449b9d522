"use strict";
// The state is stored in the link. One request runs at a time and only the latest state is requested next, so that
// dragging a slider never builds up a queue.
const told = JSON.parse(document.body.dataset.told);
const byId = (name) => document.getElementById(name);
const state = { image: "0", do: "", layer: -1, head: -1, at: "" };
const panels = [...document.querySelectorAll("article.model")];
const figures = panels.map((panel) => Object.fromEntries([...panel.querySelectorAll("figure[data-part]")].map((one) => [one.dataset.part, one])));
const strip = { label: -1, domain: -1, severity: 0, page: 0 };
let shown = null; // the last answer
let sweeping = 0;
let resting = 0;

// ------------------------------------------------------------------------------------------ asking

async function post(route, body) {
  const raw = body instanceof Blob;
  const answer = await fetch(route, { method: "POST", body: raw ? body : JSON.stringify(body) });
  const text = await answer.text();
  if (answer.status === 403) throw new Error(text);
  const found = JSON.parse(text);
  if (found.error) throw new Error(found.error);
  return found;
}

// every task has its own status line; errors are shown before progress
const said = new Map();
function status(who, text, bad = false) {
  said.delete(who);
  if (text) said.set(who, { text, bad });
  const line = [...said.values()].sort((a, b) => b.bad - a.bad)[0];
  byId("status").textContent = line?.text || "";
  byId("status").classList.toggle("bad", Boolean(line?.bad));
}

// what the user does next and succeeds ends all complaints about what was done before
function forget() {
  for (const [who, { bad }] of said) if (bad) said.delete(who);
  status(forget, "");
}

function latest(work, words) {
  let busy = false, again = false;
  return async function wish() {
    if (busy) { again = true; return; }
    busy = true;
    const slow = setTimeout(() => status(wish, words()), 700);
    try {
      do { again = false; await work(); } while (again);
      status(wish, "");
    } catch (error) {
      status(wish, error.message === "Failed to fetch" ? "The lab does not respond; is it still running?" : error.message, true);
    } finally { clearTimeout(slow); busy = false; if (again) wish(); }
  };
}

const ask = () => ({ image: state.image, do: state.do, layer: state.layer, head: state.head });
const doing = () => /pgd|fgsm/.test(state.do) ? "attacking the image …" : "predicting …";

const refresh = latest(async () => {
  clearTimeout(resting); // all layers are read once the slider rests, not while it is dragged
  keepLink();
  const wanted = ask();
  const found = await post("/look", wanted);
  forget();
  shown = found;
  underBrush(() => paint(found));
  document.body.dataset.done = JSON.stringify(wanted);
  resting = setTimeout(lookInside, 200);
}, doing);

const lookInside = latest(async () => {
  const wanted = ask(), found = await post("/inside", wanted);
  found.panels.forEach((one, n) => { panels[n].querySelector(".inside").innerHTML = one.html; panels[n].querySelector(".further").innerHTML = one.more; });
  if (byId("python").open) showLines();
  panels.forEach((panel) => panel.querySelector(".layers")?.classList.toggle("many", panel.querySelectorAll(".layer").length > 9));
  document.body.dataset.inside = Object.values(wanted).join("|");
}, () => "reading the attention of all layers …");

const lookAtToken = latest(async () => {
  if (!hovered && !state.at) { paintAttention(); return; }
  const [row, column] = hovered || state.at.split(",").map(Number);
  const found = await post("/token", { ...ask(), row, column });
  if (hovered || state.at) paintToken(found);
}, () => "reading the attention of a token …");

const loadStrip = latest(async () => {
  const found = await post("/strip", strip);
  strip.page = found.page;
  byId("strip").innerHTML = found.html;
  byId("earlier").disabled = found.page === 0;
  byId("later").disabled = found.page >= found.pages - 1;
  markFilm();
}, () => "reading images …");

// ------------------------------------------------------------------------------------------ changing the text of steps

function setStep(name, text) {
  const all = steps(), place = all.findLastIndex((step) => family(step) === name);
  if (place >= 0) all.splice(place, 1, ...(text ? [text] : []));
  else if (text) name === "corruption" ? all.unshift(text) : all.push(text);
  setDo(all.join(","));
}

function setDo(text) {
  state.do = text;
  fillControls();
  markHidden();
  refresh();
}

function fillControls() {
  const value = (step) => step?.split("/")[1]?.split("@")[0] || "0";
  const set = (name, text) => { if (byId(name)) { byId(name).value = text; if (byId(`${name}-shown`)) byId(`${name}-shown`).textContent = text; } };
  const corruption = stepOf("corruption"), occlusion = stepOf("occlusion"), attack = stepOf("attack");
  if (corruption) set("kind", corruption.split("/")[0]); // always one of the menu's, see `family`
  if (occlusion) set("occluder", occlusion.split("/")[0]);
  if (attack) set("attack", attack.split("/")[0]);
  set("severity", value(corruption)); set("ratio", value(occlusion)); set("eps", value(attack));
  if (document.activeElement !== byId("do")) byId("do").value = state.do;
}

const drawOf = (step) => step?.includes("@") ? "@" + step.split("@")[1] : "";
const corruptionWish = (seed = drawOf(stepOf("corruption"))) =>
  setStep("corruption", Number(byId("severity").value) ? `${byId("kind").value}/${byId("severity").value}${seed}` : "");
const dice = () => { const seed = `@${1 + Math.floor(Math.random() * 9999)}`; setDo(steps().map((s) => s.split("@")[0] + seed).join(",")); };

// ------------------------------------------------------------------------------------------ mouse and keys on pictures

let hovered = null; // [row, column] in shares of the image
let brush = null; // hide or show, while painting
let stroke = null; // where the brush was, while painting
let canvas = null; // the picture that was painted on last

function shareAt(event, frame) {
  const box = frame.getBoundingClientRect();
  const inside = (value) => Math.min(Math.max(value, 0), 0.9999);
  return [inside((event.clientY - box.top) / box.height), inside((event.clientX - box.left) / box.width)];
}

function snapped(share, grid) { return share.map((value, n) => (Math.floor(value * grid[n]) + 0.5) / grid[n]); }
const tokenGrid = () => shown?.panels.find((one) => one.attention?.grid)?.attention.grid;

function hover(share) {
  const grid = tokenGrid();
  if (!grid) return;
  const next = share && snapped(share, grid);
  if (String(next) === String(hovered)) return;
  hovered = next;
  lookAtToken();
}

function pin(share) {
  const grid = tokenGrid();
  if (!grid) return;
  const at = snapped(share, grid).map((value) => value.toFixed(4)).join(",");
  state.at = state.at === at ? "" : at;
  byId("release").hidden = !state.at;
  keepLink();
  lookAtToken();
}

function paintPatch(share) {
  const step = stepOf("hide"), { grid, patches } = step ? hidden(step) : { grid: told.grid, patches: [] };
  const number = Math.floor(share[0] * grid[0]) * grid[1] + Math.floor(share[1] * grid[1]);
  if (brush === null) brush = !patches.includes(number);
  if (brush === patches.includes(number)) return;
  const rest = brush ? [...patches, number].sort((a, b) => a - b) : patches.filter((n) => n !== number);
  setStep("hide", rest.length ? `hide/${grid.join("x")}:${rest.join(".")}${drawOf(step)}` : "");
}

// a quick hand is seen at a few places only: every patch on the way is painted
function paintTo(frame, share) {
  if (!stroke) { brush = null; stroke = {}; }
  canvas = frame;
  const from = stroke.at || share, way = share.map((value, n) => value - from[n]);
  const pieces = Math.max(1, ...way.map((length, n) => Math.ceil(Math.abs(length) * 2 * told.grid[n])));
  for (let n = 1; n <= pieces; n++) paintPatch(from.map((value, axis) => value + way[axis] * n / pieces));
  stroke.at = share;
}

// what is shown above a picture may grow: the page is scrolled so that the picture stays under the brush
function underBrush(change) {
  const top = () => byId("paint").checked && canvas?.getBoundingClientRect().top || 0, before = top();
  change();
  window.scrollBy(0, top() - before);
}

function listen(frame) {
  const painting = () => byId("paint").checked;
  frame.addEventListener("pointermove", (event) => {
    const share = shareAt(event, frame);
    if (painting() && event.buttons & 1) paintTo(frame, share); else if (!painting()) hover(share);
  });
  frame.addEventListener("pointerleave", () => { hover(null); if (stroke) stroke.at = null; });
  frame.addEventListener("pointerdown", (event) => { if (painting()) { event.preventDefault(); stroke = null; paintTo(frame, shareAt(event, frame)); } });
  frame.addEventListener("click", (event) => { if (!painting()) pin(shareAt(event, frame)); });
  frame.addEventListener("keydown", (event) => {
    const grid = painting() ? told.grid : tokenGrid(), moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!grid) return;
    const now = snapped(hovered || [0.5, 0.5], grid);
    if (moves[event.key]) {
      event.preventDefault();
      const next = now.map((value, n) => Math.min(Math.max(value + moves[event.key][n] / grid[n], 0.5 / grid[n]), 1 - 0.5 / grid[n]));
      if (painting()) { hovered = next; panels.forEach((_, n) => mark(n, { grid, row: Math.floor(next[0] * grid[0]), column: Math.floor(next[1] * grid[1]) })); }
      else hover(next);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (painting()) { brush = null; paintPatch(now); } else pin(now);
    }
  });
}

// ------------------------------------------------------------------------------------------ links, files, sweep

function keepLink() {
  const wanted = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value !== "" && value !== -1) wanted.set(name, value);
  history.replaceState(null, "", `?${wanted}`);
  return wanted;
}

async function fetchKept(form) {
  const answer = await fetch(`/keep/${form}?${keepLink()}`);
  if (!answer.ok) throw new Error(answer.status === 403 ? await answer.text() : (await answer.json()).error);
  return answer.blob();
}

async function keep(form) {
  try {
    status("keep", `preparing ${form} …`);
    const url = URL.createObjectURL(await fetchKept(form)), link = document.createElement("a");
    link.href = url; link.download = `holdfast-lab-${form}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    status("keep", "");
    forget();
  } catch (error) { status("keep", error.message, true); }
}

const showLines = latest(async () => {
  byId("python").querySelector("pre").textContent = await (await fetchKept("lines.py")).text();
}, () => "writing the code …");

function readLink() {
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (name in state) state[name] = ["layer", "head"].includes(name) ? Number(value) || 0 : value;
  }
  if (!/^0\.\d+,0\.\d+$/.test(state.at)) state.at = "";
  byId("release") && (byId("release").hidden = !state.at);
}

async function drop(file) {
  try {
    status("drop", `reading ${file.name} …`);
    const found = await post("/drop", file);
    state.image = found.image;
    status("drop", ""); markFilm(); refresh();
  } catch (error) { status("drop", error.message, true); }
}

async function sweep() {
  const mine = ++sweeping, wanted = ask(), body = byId("swept").tBodies[0];
  body.replaceChildren();
  byId("swept").hidden = false;
  byId("tally").textContent = "";
  for (const [n, kind] of told.kinds.entries()) {
    status("sweep", `sweeping: ${kind.replaceAll("_", " ")}, ${n + 1} of ${told.kinds.length}`);
    try {
      const found = await post("/sweep", { ...wanted, kind });
      if (mine !== sweeping) { status("sweep", ""); return; }
      body.insertAdjacentHTML("beforeend", found.html);
    } catch (error) { status("sweep", error.message, true); return; }
  }
  status("sweep", "");
  byId("tally").textContent = told.models.map((name, n) => {
    const count = (state) => body.querySelectorAll(`td[data-model="${n}"]${state}`).length;
    return `${name}: ${count(".good")} of ${count("")} green`;
  }).join("; ");
  document.body.dataset.swept = told.kinds.length;
}

// ------------------------------------------------------------------------------------------ beginning

const on = (name, event, action) => byId(name)?.addEventListener(event, action);
const pickImage = (image) => { state.image = image; sweeping++; byId("swept").hidden = true; markFilm(); refresh(); };
on("severity", "input", () => corruptionWish());
on("kind", "change", () => corruptionWish());
on("dice", "click", dice);
on("records-draw", "click", () => setDo(steps().map((step) => step.split("@")[0]).join(",")));
on("append", "click", () => setDo([...steps(), `${byId("kind").value}/1`].join(",")));
on("show-all", "click", () => setStep("hide", ""));
for (const name of ["ratio", "occluder"]) on(name, "input", () => setStep("occlusion", Number(byId("ratio").value) ? `${byId("occluder").value}/${byId("ratio").value}${drawOf(stepOf("occlusion"))}` : ""));
for (const name of ["eps", "attack"]) on(name, "input", () => setStep("attack", Number(byId("eps").value) ? `${byId("attack").value}/${byId("eps").value}${drawOf(stepOf("attack"))}` : ""));
on("do", "change", () => setDo(byId("do").value.replaceAll(" ", "")));
on("mend", "click", () => setDo(""));
on("layer", "change", () => { state.layer = Number(byId("layer").value); refresh(); });
on("head", "change", () => { state.head = Number(byId("head").value); refresh(); });
on("release", "click", () => { state.at = ""; byId("release").hidden = true; keepLink(); lookAtToken(); });
on("label", "change", () => { strip.label = Number(byId("label").value); strip.page = 0; loadStrip(); });
on("domain", "change", () => { strip.domain = Number(byId("domain").value); strip.page = 0; loadStrip(); });
on("flips", "change", () => { strip.severity = Number(byId("flips").value); strip.page = 0; loadStrip(); });
on("earlier", "click", () => { strip.page--; loadStrip(); });
on("later", "click", () => { strip.page++; loadStrip(); });
on("file", "change", () => { if (byId("file").files[0]) drop(byId("file").files[0]); });
on("go-sweep", "click", sweep);
on("copy", "click", async () => {
  try { await navigator.clipboard.writeText(location.href); status("copy", "Link copied; it works in this browser."); }
  catch { status("copy", "The browser does not allow copying: copy the link from its address bar."); }
  setTimeout(() => status("copy", ""), 3000);
});
on("python", "toggle", () => { if (byId("python").open) showLines(); });
on("paint", "change", () => document.body.classList.toggle("painting", byId("paint").checked));
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => { stroke = null; });
document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dragging"); });
document.addEventListener("dragleave", () => document.body.classList.remove("dragging"));
document.addEventListener("drop", (event) => { event.preventDefault(); document.body.classList.remove("dragging"); if (event.dataTransfer.files[0]) drop(event.dataTransfer.files[0]); });
document.addEventListener("click", (event) => {
  const form = event.target.closest("[data-form]");
  if (form) keep(form.dataset.form);
  const film = event.target.closest(".film"), swept = event.target.closest(".swept"), layer = event.target.closest(".layer");
  if (film) pickImage(film.dataset.image);
  if (swept) { setDo(swept.dataset.do); byId("see").scrollIntoView(); }
  if (layer) { state.layer = Number(layer.dataset.layer); refresh(); }
});
window.addEventListener("popstate", () => { readLink(); fillControls(); refresh(); });
document.querySelectorAll("article .frame").forEach(listen);
readLink();
fillControls();
loadStrip();
refresh();

/* What a reader can do with the page: sort, search, choose, point at values, enlarge. Without scripts everything is there
   and in its place. All text that comes from runs is in the page already, as text; nothing here makes markup of it. */
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const MANY = 12; // rows or models from which on a search field helps
  const MISSING = "–";

  /* tables: sorted by the column whose heading is pressed, best first, then worst first, then as they were */

  const NUMBER = /^[+-]?\d[\d,]*(\.\d+)?(?=\D|$)/;
  const textOf = (cell) => (cell?.textContent ?? "").trim().replace("−", "-");
  const valueOf = (row, place) => {
    const cell = row.cells[place], text = textOf(cell);
    if (!cell || text === MISSING || text === "") return null;
    const given = cell.dataset.value ?? (place > 0 ? text.match(NUMBER)?.[0].replaceAll(",", "") : undefined);
    return given === undefined ? text.toLowerCase() : Number(given);
  };
  const compared = (one, other, down) => {
    if (one === null || other === null) return (one === null) - (other === null); // what is missing comes last
    const order = typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), undefined, { numeric: true });
    return down ? -order : order;
  };
  const sortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    const home = [...table.tBodies].flatMap((body) => [...body.rows].map((row) => [body, row]));
    const rows = home.map(([, row]) => row).filter((row) => !row.classList.contains("group"));
    const sort = (place) => {
      const head = heads[place], before = head.getAttribute("aria-sort");
      const first = head.dataset.better === "low" || rows.every((row) => typeof valueOf(row, place) !== "number") ? "ascending" : "descending";
      const then = first === "ascending" ? "descending" : "ascending";
      const now = before === null ? first : before === first ? then : null;
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      table.classList.toggle("sorted", now !== null);
      if (now === null) return home.forEach(([body, row]) => body.append(row));
      head.setAttribute("aria-sort", now);
      const ordered = [...rows].sort((one, other) => compared(valueOf(one, place), valueOf(other, place), now === "descending"));
      table.tBodies[0].append(...ordered);
    };
    heads.forEach((head, place) => {
      const name = head.querySelector(".label")?.textContent ?? head.textContent.trim();
      const button = make("button", { type: "button", class: "sort", "aria-label": `sort by ${name || "name"}` });
      head.append(button);
      head.classList.add("sortable");
      head.addEventListener("click", (event) => { if (!event.target.closest(".info, [popover]")) sort(place); });
    });
  };
  const searchable = (table) => {
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]).filter((row) => !row.classList.contains("group"));
    if (rows.length <= (table.matches(".texts") ? 3 : 1) * MANY) return; // the kinds of corruption are read as they are
    const field = make("input", { type: "search", placeholder: `search ${rows.length} rows`, "aria-label": "search rows" });
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase().split(/\s+/);
      const meant = (row) => `${row.cells[0].textContent} ${row.dataset.group ?? ""}`.toLowerCase();
      rows.forEach((row) => row.classList.toggle("unfound", !wanted.every((word) => meant(row).includes(word))));
      emptyGroups();
    });
    (table.closest(".scroll") ?? table).before(make("p", { class: "tools" }, field));
  };
  const emptyGroups = () => all("tbody").forEach((body) => {
    const [head, ...rows] = body.rows;
    if (head?.classList.contains("group")) head.hidden = rows.length > 0 && rows.every((row) => row.matches(".unfound, .unchosen"));
  });

  /* choosing models and suites (and columns, on a leaderboard) */

  const runsOf = new Map(); // name → numbers
  const choice = { run: new Set(), suite: new Set(), column: new Set() }; // what is not shown
  const apply = () => {
    for (const key of Object.keys(choice)) {
      all(`main [data-${key}]`).forEach((element) => {
        const off = choice[key].has(element.getAttribute(`data-${key}`));
        element.classList.toggle(`un${key}`, off);
        element.classList.toggle("unchosen", Object.keys(choice).some((each) => element.classList.contains(`un${each}`)));
      });
    }
    all("svg [data-label]").forEach((element) => {
      const numbers = runsOf.get(element.getAttribute("data-label"));
      element.classList.toggle("unchosen", Boolean(numbers?.length) && numbers.every((number) => choice.run.has(number)));
    });
    all("svg").forEach((svg) => { delete svg.values; });
    emptyGroups();
    rebold();
    told();
    remember();
  };
  /* bold is the best of the rows that are shown, as printed: ties are bold together */
  const rebold = () => all("table.scores").forEach((table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      if (!head.dataset.better) return;
      const cells = [...table.tBodies].flatMap((body) => [...body.rows]).filter((row) => !row.matches(".group, .unchosen")).map((row) => row.cells[place])
        .filter((cell) => cell?.dataset.value !== undefined && cell.querySelector(".best, .number") && !("unranked" in cell.dataset) && textOf(cell) !== MISSING);
      const printed = (cell) => Number(cell.querySelector(".best, .number")?.textContent.replace("−", "-"));
      const values = cells.map(printed), best = head.dataset.better === "high" ? Math.max(...values) : Math.min(...values);
      cells.forEach((cell, at) => { cell.querySelector(".best, .number").className = cells.length > 1 && values[at] === best ? "best" : "number"; });
    });
  });
  const choosers = [];
  const told = () => {
    let nothing = false;
    for (const [summary, title, inputs] of choosers) {
      const chosen = inputs.filter((input) => input.checked).length;
      summary.textContent = chosen === inputs.length ? title : `${title}: ${chosen} of ${inputs.length}`;
      nothing ||= chosen === 0;
    }
    const note = document.getElementById("nothing");
    if (note) note.hidden = !nothing;
  };
  /* the address keeps what was chosen: #run=1,2&base=data-1:2 lists what is not shown and the baselines */
  const bases = new Map();
  const remember = () => {
    const kept = Object.entries(choice).filter(([key, off]) => key !== "column" && off.size).map(([key, off]) => `${key}=${[...off].map(encodeURIComponent).join(",")}`);
    if (bases.size) kept.push(`base=${[...bases].map((pair) => pair.join(":")).join(",")}`);
    if (kept.length || location.hash.includes("=")) history.replaceState(null, "", kept.length ? `#${kept.join("&")}` : "#");
  };
  const remembered = Object.fromEntries(location.hash.slice(1).split("&").filter((part) => part.includes("=")).map((part) => {
    const [key, list] = part.split("=");
    return [key, list.split(",").map(decodeURIComponent)];
  }));
  const boxes = (key, title, options) => {
    const list = make("div", { class: "options" });
    const inputs = options.map(([value, name, mark]) => {
      const input = make("input", { type: "checkbox", value });
      input.checked = !choice[key].has(value);
      input.addEventListener("change", () => {
        choice[key][input.checked ? "delete" : "add"](value);
        apply();
      });
      list.append(make("label", {}, input, ...(mark ? [mark.cloneNode()] : []), make("span", {}, name)));
      return input;
    });
    const set = (checked) => {
      inputs.filter((input) => input.parentElement.offsetParent !== null).forEach((input) => {
        input.checked = checked;
        choice[key][checked ? "delete" : "add"](input.value);
      });
      apply();
    };
    const every = make("button", { type: "button" }, "all"), none = make("button", { type: "button" }, "none");
    every.addEventListener("click", () => set(true));
    none.addEventListener("click", () => set(false));
    const bar = make("div", { class: "bar" }, every, none);
    if (options.length > MANY) {
      const field = make("input", { type: "search", placeholder: "search", "aria-label": `search ${title}` });
      field.addEventListener("input", () => all("label", list).forEach((label) => { label.hidden = !label.textContent.toLowerCase().includes(field.value.trim().toLowerCase()); }));
      bar.prepend(field);
    }
    const summary = make("summary", {}, title), box = make("details", { class: `choose choose-${key}` }, summary, make("div", { class: "panel" }, bar, list));
    choosers.push([summary, title, inputs]);
    box.addEventListener("keydown", (event) => { if (event.key === "Escape" && box.open) { box.open = false; summary.focus(); } });
    document.addEventListener("click", (event) => { if (!box.contains(event.target)) box.open = false; });
    return box;
  };
  const chooser = () => {
    const place = document.getElementById("tools");
    if (!place) return;
    const models = all("#models [data-run]").map((item) => [item.dataset.run, item.textContent.trim(), item.querySelector(".dot")]);
    models.forEach(([number, name]) => runsOf.set(name, [...(runsOf.get(name) ?? []), number]));
    const suites = new Map(all("main th[data-suite]").map((head) => [head.dataset.suite, head.dataset.suiteName ?? head.dataset.suite]));
    const columns = new Map(all("main th[data-column]").map((head) => [head.dataset.column, (head.querySelector(".label") ?? head).textContent.trim()]));
    all("main th[data-off]").forEach((head) => choice.column.add(head.dataset.column));
    for (const [key, off] of Object.entries(remembered)) if (key in choice && key !== "column") off.forEach((value) => choice[key].add(value));
    if (models.length > 1) place.append(boxes("run", "Models", models));
    if (columns.size > 1) place.append(boxes("column", "Columns", [...columns]));
    else if (suites.size > 1) place.append(boxes("suite", "Suites", [...suites]));
    place.hidden = !place.children.length;
    place.after(make("p", { id: "nothing", class: "empty", hidden: "" }, "Nothing is chosen: tick something above to see it."));
    if (Object.values(choice).some((off) => off.size)) apply();
  };

  /* the baseline: a press on a column of the pairs shows the verdicts, sentences and plots against that model */

  const rebase = (part, place) => {
    const own = [...all("[data-baseline]", part), ...all("[data-baseline]", document.getElementById(`${part.id}-decision`) ?? part)];
    own.forEach((block) => { block.hidden = block.dataset.baseline !== place; });
    all("th[data-base]", part).forEach((head) => {
      head.classList.toggle("base", head.dataset.base === place);
      head.querySelector("button.base")?.setAttribute("aria-pressed", String(head.dataset.base === place));
    });
    differences(part);
  };
  const baselines = () => all("main > section").forEach((part) => {
    const heads = all("th[data-base]", part);
    heads.forEach((head) => {
      const name = head.querySelector(".name"), button = make("button", { type: "button", class: "base" });
      name.replaceWith(button);
      button.append(name);
      button.addEventListener("click", () => {
        head.dataset.base === heads[0].dataset.base ? bases.delete(part.id) : bases.set(part.id, head.dataset.base);
        rebase(part, head.dataset.base);
        remember();
      });
    });
    const kept = (remembered.base ?? []).map((pair) => pair.split(":")).find(([id]) => id === part.id)?.[1];
    const first = heads.find((head) => head.dataset.base === kept) ?? heads[0];
    if (first !== heads[0]) bases.set(part.id, first.dataset.base);
    if (first) rebase(part, first.dataset.base);
  });

  /* heat maps: scores, or differences from the baseline; a cell with examples shows them */

  const PAIRED = "table.heat.cells tbody tr:not(.group) > td";
  const differences = (part) => {
    const tables = all("table.heat.cells", part), on = part.querySelector(".heat-tools [data-mode=difference]")?.getAttribute("aria-pressed") === "true";
    const number = part.querySelector("th.base")?.dataset.run ?? tables[0]?.closest("[data-run]").dataset.run;
    const base = tables.find((table) => table.closest("[data-run]").dataset.run === number);
    const button = part.querySelector(".heat-tools [data-mode=difference]");
    if (base && button) button.textContent = `difference from ${base.caption.textContent.trim()}`;
    const key = (cell) => `${cell.parentElement.dataset.kind}/${cell.cellIndex}`;
    const kept = new Map(base ? all(PAIRED, base).map((cell) => [key(cell), cell]) : []);
    tables.forEach((table) => all(PAIRED, table).forEach((cell) => {
      const holder = cell.querySelector("button") ?? cell;
      cell.dataset.text ??= holder.textContent;
      const value = (each) => (each?.style.getPropertyValue("--error") ? 100 - parseFloat(each.style.getPropertyValue("--error")) : parseFloat(each?.dataset.text ?? each?.textContent));
      const apart = value(cell) - value(kept.get(key(cell)));
      cell.classList.toggle("gain", on && apart > 0);
      cell.classList.toggle("loss", on && apart <= 0);
      cell.style.setProperty("--apart", String(Math.min(60, Math.abs(apart) || 0)));
      holder.textContent = !on || Number.isNaN(apart) ? cell.dataset.text : `${apart > 0.05 ? "+" : apart < -0.05 ? "−" : ""}${Math.abs(apart).toFixed(cell.matches(".mean") ? 1 : 0)}`;
    }));
  };
  const heats = () => all("main > section").forEach((part) => {
    const place = part.querySelector(".heat-tools"), tables = all("table.heat.cells", part);
    if (place && tables.length > 1) {
      const modes = [["score", "score"], ["difference", "difference"]].map(([mode, words], at) => {
        const button = make("button", { type: "button", "data-mode": mode, "aria-pressed": String(at === 0) }, words);
        button.addEventListener("click", () => {
          modes.forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
          differences(part);
        });
        return button;
      });
      place.append(make("span", { class: "group", role: "group", "aria-label": "what the heat maps show" }, ...modes));
      place.hidden = false;
      differences(part);
    }
    const kinds = new Set(all("figure.example", part).map((figure) => figure.dataset.kind));
    all("table.heat.cells td[data-cell]", part).forEach((cell) => {
      const [kind, severity] = cell.dataset.cell.split("/");
      if (!kinds.has(kind)) return;
      const button = make("button", { type: "button", "aria-description": `show examples of ${kind.replaceAll("_", " ")}, severity ${severity}` }, cell.textContent);
      cell.replaceChildren(button);
      button.addEventListener("click", () => part.dispatchEvent(new CustomEvent("examples", { detail: cell.dataset.cell })));
    });
  });

  /* definitions open beside their sign; without scripts the browser puts them in the middle */

  const definitions = () => all("[popover]").forEach((box) => box.addEventListener("toggle", (event) => {
    if (event.newState !== "open") return;
    const sign = document.querySelector(`[popovertarget="${box.id}"]`).getBoundingClientRect();
    box.style.left = `${Math.max(6, Math.min(sign.left, innerWidth - box.offsetWidth - 8))}px`;
    box.style.top = `${sign.bottom + box.offsetHeight + 8 > innerHeight ? Math.max(6, sign.top - box.offsetHeight - 6) : sign.bottom + 6}px`;
  }));

  /* values: of the nearest point of a curve, of a square of a heat map */

  const tip = make("div", { class: "tip", role: "status" });
  const show = (text, x, y) => {
    tip.textContent = text;
    (document.querySelector("dialog[open]") ?? document.body).append(tip);
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 16}px`;
    tip.classList.add("shown");
  };
  const hide = () => {
    tip.classList.remove("shown");
    all("svg .ring").forEach((ring) => ring.remove());
  };
  const points = (svg) => (svg.values ??= all(".value", svg).filter((dot) => !dot.matches(".unchosen")).map((dot) => ({
    x: Number(dot.getAttribute("cx")), y: Number(dot.getAttribute("cy")), text: dot.dataset.text,
  })));
  const mark = (svg, point) => {
    hide();
    const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    for (const [name, value] of Object.entries({ class: "ring", cx: point.x, cy: point.y, r: 5 })) ring.setAttribute(name, value);
    svg.append(ring);
  };
  const pointed = (svg, event) => {
    const matrix = svg.getScreenCTM();
    if (!matrix || !points(svg).length) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    const distance = (point) => Math.hypot(point.x - at.x, point.y - at.y);
    const nearest = points(svg).reduce((best, point) => (distance(point) < distance(best) ? point : best));
    hide();
    if (distance(nearest) > 28) return;
    mark(svg, nearest);
    show(nearest.text, event.clientX, event.clientY);
  };
  const squared = (square, event) => {
    const table = square.closest("table"), section = square.closest("section") ?? document;
    const same = all("table.heat td[data-cell]", section).filter((other) => other.dataset.cell === square.dataset.cell && other.offsetParent !== null && other.style.getPropertyValue("--error"));
    const percent = (each) => (100 - parseFloat(each.style.getPropertyValue("--error"))).toFixed(1);
    const line = (each) => `${each.closest("table").caption?.textContent.trim() ?? ""}: ${percent(each)} %`;
    const others = same.filter((other) => other.closest("table") !== table).slice(0, 7);
    const [kind, severity] = [square.parentElement.cells[0].textContent, square.dataset.cell.split("/").pop()];
    const lines = !square.style.getPropertyValue("--error") ? ["not measured"] : [square, ...others].map(line);
    show([`${kind}, severity ${severity}`, ...lines].join("\n"), event.clientX, event.clientY);
  };
  const values = () => {
    all(".value title").forEach((title) => { // the browser would show it as well, later and elsewhere
      title.parentElement.dataset.text = title.textContent;
      title.remove();
    });
    all("figure svg").filter((svg) => svg.querySelector(".value")).forEach((svg) => { // arrows walk along the values
      svg.setAttribute("tabindex", "0");
      svg.setAttribute("role", "application");
      svg.setAttribute("aria-roledescription", "chart, arrows read its values");
      let at = -1;
      svg.addEventListener("keydown", (event) => {
        const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key], known = points(svg);
        if (event.key === "Escape" && tip.classList.contains("shown")) { hide(); event.stopPropagation(); event.preventDefault(); }
        if (!by || !known.length) return;
        event.preventDefault();
        event.stopPropagation();
        at = at < 0 ? (by > 0 ? 0 : known.length - 1) : (at + by + known.length) % known.length;
        const matrix = svg.getScreenCTM(), place = new DOMPoint(known[at].x, known[at].y).matrixTransform(matrix);
        mark(svg, known[at]);
        show(known[at].text, place.x, place.y);
      });
      svg.addEventListener("blur", hide);
    });
    document.addEventListener("pointermove", (event) => {
      const at = event.target instanceof Element ? event.target : null;
      const svg = at?.closest("figure svg, dialog svg"), square = at?.closest("table.heat td[data-cell]");
      if (svg) pointed(svg, event);
      else if (square) squared(square, event);
      else if (tip.classList.contains("shown")) hide();
    });
    document.addEventListener("scroll", hide, { passive: true, capture: true });
  };

  /* enlarging: the picture itself goes into a dialog and back, so that its parts keep their names */

  const enlarging = () => {
    const dialog = make("dialog", { class: "enlarged", "aria-label": "enlarged picture" });
    if (typeof dialog.showModal !== "function") return;
    const title = make("h3"), body = make("div", { class: "body" });
    const button = (text, label) => make("button", { type: "button", "aria-label": label }, text);
    const [back, on, close] = [button("←", "previous picture"), button("→", "next picture"), button("×", "close")];
    dialog.append(make("div", { class: "bar" }, title, back, on, close), body);
    document.body.append(dialog);
    let held = null;
    const within = () => all("figure.card, figure.example").filter((figure) => figure.offsetParent !== null || figure === held?.figure);
    const restore = () => {
      if (held) held.mark.replaceWith(held.picture);
      held = null;
    };
    const open = (figure) => {
      restore();
      hide();
      const picture = figure.querySelector(".picture"), mark = make("div", { class: "away" });
      mark.style.height = `${picture.offsetHeight}px`;
      held = { figure, picture, mark };
      picture.replaceWith(mark);
      title.textContent = figure.querySelector("h3, figcaption")?.textContent.trim() ?? "";
      const answers = figure.matches(".example") ? figure.querySelector("ul")?.cloneNode(true) : null;
      const lab = figure.closest("[data-lab]")?.dataset.lab;
      body.replaceChildren(picture, ...(answers ? [answers] : []));
      if (answers && lab) body.append(make("p", { class: "small" }, `Open it in the lab, image ${figure.dataset.id}, ${title.textContent.split(":")[0]}:`), make("pre", { tabindex: "0" }, make("code", {}, lab)));
      if (!dialog.open) dialog.showModal();
    };
    const step = (by) => {
      const there = within(), place = there.indexOf(held.figure);
      if (place >= 0) open(there[(place + by + there.length) % there.length]);
    };
    back.addEventListener("click", () => step(-1));
    on.addEventListener("click", () => step(1));
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft") step(-1);
      if (event.key === "ArrowRight") step(1);
    });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("close", () => {
      const figure = held?.figure;
      restore();
      figure?.querySelector(".enlarge")?.focus({ preventScroll: true });
    });
    all("figure.card, figure.example").forEach((figure) => {
      const picture = figure.querySelector(".picture");
      if (!picture) return;
      const opener = make("button", { type: "button", class: "enlarge", "aria-label": `enlarge ${figure.querySelector("h3, figcaption")?.textContent.trim() ?? "picture"}` }, "⤢");
      opener.addEventListener("click", () => open(figure));
      picture.addEventListener("click", () => { if (picture.parentElement === figure) open(figure); });
      figure.prepend(opener);
    });
  };

  /* examples: by kind, hardest or most disagreed about first */

  const examples = (section) => {
    const tools = section.querySelector(".tools"), list = section.querySelector(".examples");
    let only = ""; // a cell of the heat maps
    const figures = all("figure.example", list);
    const choose = (label, options) => {
      const select = make("select", { "aria-label": label }, ...options.map(([value, name]) => make("option", { value }, name)));
      select.addEventListener("change", update);
      return select;
    };
    const kinds = [...new Map(figures.map((figure) => [figure.dataset.kind, figure.dataset.kindName])).entries()];
    const update = () => {
      if (only && !only.startsWith(`${kind.value}/`)) only = "";
      figures.forEach((figure) => { figure.hidden = (kind.value !== "" && figure.dataset.kind !== kind.value) || (only !== "" && figure.dataset.cell !== only) || (order.value === "split" && !(Number(figure.dataset.split) > 0)); });
      section.querySelector(".empty").hidden = figures.some((figure) => !figure.hidden);
      every.hidden = kind.value === "" && order.value !== "split";
      every.textContent = only ? `severity ${only.split("/").pop()} only: show all` : "show all";
      list.append(...[...figures].sort((one, other) => Number(other.dataset[order.value]) - Number(one.dataset[order.value])));
      count.textContent = `${figures.filter((figure) => !figure.hidden).length} of ${figures.length}`;
    };
    const order = choose("order", [["hard", "hardest first"], ...(figures.some((figure) => Number(figure.dataset.split) > 0) ? [["split", "where they disagree"]] : [])]);
    const kind = choose("kind", [["", "all kinds"], ...kinds]);
    const count = make("span", { class: "small", role: "status" }), every = make("button", { type: "button" }, "show all");
    every.addEventListener("click", () => { kind.value = ""; order.value = "hard"; only = ""; update(); });
    section.closest("section").addEventListener("examples", (event) => {
      const [wanted] = event.detail.split("/");
      [kind.value, order.value] = [wanted, "hard"];
      only = figures.some((figure) => figure.dataset.cell === event.detail) ? event.detail : "";
      update();
      section.scrollIntoView({ block: "start" });
      kind.focus({ preventScroll: true });
    });
    tools.append(order, kind, count, every);
    tools.hidden = false;
    update();
  };

  document.documentElement.classList.add("scripted");
  all("table.sortable").forEach((table) => { sortable(table); searchable(table); });
  chooser();
  heats();
  baselines();
  definitions();
  values();
  all("section.with-examples, div.with-examples").forEach(examples);
  enlarging();
})();

"use strict";
// The text of steps, such as fog/3,hide/8x8:27.28,pgd/8; `state` and `told` are those of lab.js.

const steps = () => state.do.split(",").filter(Boolean);
const family = (step) => {
  const kind = step.split("/")[0];
  return kind === "hide" ? "hide" : ["occlude", "learned"].includes(kind) ? "occlusion"
    : ["fgsm", "pgd"].includes(kind) ? "attack" : told.kinds.includes(kind) ? "corruption" : "unknown";
};
const stepOf = (name) => steps().findLast((step) => family(step) === name);
const hidden = (step) => {
  const [, rows, columns, list] = /hide\/(\d+)x(\d+):([\d.]*)/.exec(step) || ["", ...told.grid, ""];
  return { grid: [Number(rows), Number(columns)], patches: list.split(".").filter(Boolean).map(Number) };
};

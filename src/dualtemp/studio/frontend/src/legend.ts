// What the colors mean; a click on a category selects its images.

import { categoryColor, css, dark, rampColor, rangeOf } from "./colors";
import { byId, fill, h } from "./dom";
import { store } from "./store";

const SHOWN = 24;

// While the temperatures act, points show what they carry of the gradient.
let gradient = false;
export function showGradient(on: boolean): void {
  gradient = on;
  drawLegend();
}

export function drawLegend(): void {
  const column = store.column, legend = byId("legend");
  if (gradient) {
    const dots = ["anchors", "negatives"].map(kind => h("div", { class: `key ${kind}` }, h("i", { "aria-hidden": "true" }), h("span", {}, kind)));
    return fill(legend, h("b", {}, "gradient"), ...dots, h("small", {}, "larger: carries more"));
  }
  if (!column) return fill(legend);
  if (column.kind === "number") {
    const { low, high } = rangeOf(column.values as Float32Array), bar = h("canvas", { width: 120, height: 8, "aria-hidden": "true" });
    const ink = bar.getContext("2d")!;
    for (let x = 0; x < 120; x++) { ink.fillStyle = css(rampColor(x / 119)); ink.fillRect(x, 0, 1, 8); }
    return fill(legend, h("div", { class: "ramp", title: column.about }, h("b", {}, column.title), h("span", {}, short(low)), bar, h("span", {}, short(high))));
  }
  const counts = new Uint32Array(column.categories.length);
  for (const code of column.values) if (code < counts.length) counts[code]++;
  const there = column.categories.map((_, code) => code).filter(code => counts[code]);
  const entries = there.slice(0, SHOWN).map(code => {
    const swatch = h("i", { "aria-hidden": "true" });
    swatch.style.background = css(categoryColor(code));
    return h("button", { type: "button", class: "key", title: `Select these ${counts[code].toLocaleString("en")}`, onclick: () => pick(code) }, swatch, h("span", {}, column.categories[code]), h("small", {}, counts[code].toLocaleString("en")));
  });
  fill(legend, h("b", { title: column.about }, column.title), ...entries, there.length > SHOWN && h("small", {}, `and ${there.length - SHOWN} more`));
}

function pick(code: number): void {
  const column = store.column!, found: number[] = [];
  for (let i = 0; i < store.count; i++) if (column.values[i] === code) found.push(i);
  store.select(found, `with ${column.title} ${column.categories[code]}`);
}

export const short = (value: number): string => Math.abs(value) >= 1000 || (value !== 0 && Math.abs(value) < 0.001) ? value.toExponential(1) : String(Number(value.toPrecision(3)));

dark.addEventListener("change", drawLegend);

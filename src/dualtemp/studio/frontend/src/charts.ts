// Small line charts of runs, in SVG.

import { categoryColor, css } from "./colors";
import { h, svg } from "./dom";
import { short } from "./legend";

export interface Line { name: string; points: [number, number][]; color: number }

const WIDTH = 268, HEIGHT = 96, LEFT = 34, BOTTOM = 14, TOP = 6, RIGHT = 6;

export function lineChart(title: string, about: string, lines: Line[]): HTMLElement {
  const all = lines.flatMap(line => line.points), xs = all.map(p => p[0]), ys = all.map(p => p[1]).filter(Number.isFinite);
  const x0 = Math.min(...xs, 0), x1 = Math.max(...xs, 1), y0 = Math.min(...ys), y1 = Math.max(...ys);
  const span = y1 > y0 ? y1 - y0 : Math.abs(y1) || 1, low = y1 > y0 ? y0 : y0 - span / 2;
  const px = (x: number): number => LEFT + (x - x0) / (x1 - x0 || 1) * (WIDTH - LEFT - RIGHT), py = (y: number): number => HEIGHT - BOTTOM - (y - low) / span * (HEIGHT - BOTTOM - TOP);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${lines.map(line => `${line.name} ${short(line.points.at(-1)?.[1] ?? NaN)}`).join(", ")}` });
  for (const y of [low, low + span]) {
    picture.append(svg("line", { class: "rule", x1: LEFT, x2: WIDTH - RIGHT, y1: py(y), y2: py(y) }), svg("text", { x: LEFT - 4, y: py(y) + 3, "text-anchor": "end" }, short(y)));
  }
  picture.append(svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 2, "text-anchor": "end" }, `epoch ${short(x1)}`));
  for (const line of lines) {
    const color = css(categoryColor(line.color)), path = line.points.map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`).join(" ");
    if (line.points.length > 1) picture.append(svg("polyline", { points: path, stroke: color }));
    const last = line.points.at(-1);
    if (last) picture.append(svg("circle", { cx: px(last[0]), cy: py(last[1]), r: 2.5, fill: color }));
  }
  const values = lines.map(line => short(line.points.at(-1)?.[1] ?? NaN)).join(" \u00b7 ");
  return h("figure", { class: "chart", title: about }, h("figcaption", {}, h("span", {}, title), h("b", {}, values)), picture);
}

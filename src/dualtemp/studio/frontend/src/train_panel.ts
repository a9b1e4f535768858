// Learn from these: start, watch, stop, resume and compare runs; see the map by one.

import { attempt, getJson, post } from "./api";
import { Line, lineChart } from "./charts";
import { categoryColor, css } from "./colors";
import { fill, h, many, say } from "./dom";
import { Run, store } from "./store";
import { oneAtATime } from "./turns";

interface History { name: string; epochs: number; status: string; curves: { key: string; title: string; about: string; points: [number, number][] }[] }

const compared = new Set<string>();
const histories = new Map<string, History>();
const FIRST = ["loss", "knn_top1", "probe_top1", "entropy", "W_mean", "hardest_tenth", "alignment", "uniformity", "effective_rank"];

export function trainPanel(): HTMLElement {
  const method = h("select", { id: "method", "aria-label": "Method" }, ...store.methods.map(each => h("option", { selected: each === "simco" }, each)));
  const init = h("select", { id: "init", "aria-label": "Start" }, h("option", { value: "auto" }, "as usual"), h("option", { value: "imagenet" }, "imagenet"), h("option", { value: "none" }, "from nothing"));
  const number = (id: string, label: string, step: string, hint: string): HTMLInputElement => h("input", { type: "number", id, "aria-label": label, step, min: step === "1" ? 1 : 0.001, placeholder: hint });
  const epochs = number("epochs", "Epochs", "1", "auto"), batch = number("batch", "Batch", "1", "auto"), alpha = number("tau-alpha", "tau alpha", "any", "0.1"), beta = number("tau-beta", "tau beta", "any", "1");
  const what = h("p", { class: "quiet", id: "learn-what" }), list = h("ul", { id: "runs" }), charts = h("div", { id: "charts" });
  const refresh = oneAtATime(() => drawCharts(charts)), redraw = (): void => { drawList(list, refresh); void refresh(); };
  const form = h("form", { id: "learn" },
    h("div", { class: "fields" },
      h("label", {}, "method", method), h("label", {}, "start", init), h("label", {}, "epochs", epochs), h("label", {}, "batch", batch),
      h("label", {}, "\u03c4 alpha", alpha), h("label", {}, "\u03c4 beta", beta)),
    h("button", { type: "submit", class: "main" }, "Learn from these"));
  form.addEventListener("submit", event => {
    event.preventDefault();
    const value = (input: HTMLInputElement): number | null => input.value ? Number(input.value) : null;
    const ids = store.targets();
    void attempt(async () => {
      const { run } = await post<{ run: string }>("/api/train", {
        ids: ids.length ? ids : null, method: method.value, init: init.value, epochs: value(epochs), batch: value(batch), tau_alpha: value(alpha), tau_beta: value(beta),
      });
      compared.add(run);
      say(`${run} has started; it goes on if you close this page.`);
    });
  });
  const aim = (): void => {
    const count = store.targets().length;
    what.textContent = count ? `A new run on the ${store.marks.size ? "marked" : "selected"} ${many(count, "image")}.` : `A new run on all ${many(store.count, "image")}; select some to learn from these alone.`;
  };
  store.on(["selection", "marks"], aim);
  store.on(["runs"], redraw);
  queueMicrotask(() => { aim(); redraw(); });
  return h("div", {}, h("h3", {}, "Learn from these"), what, form, h("h3", {}, "Runs"), list, charts);
}

function drawList(list: HTMLElement, refresh: () => Promise<void>): void {
  if (!store.runs.length) return fill(list, h("li", { class: "quiet" }, "None yet."));
  fill(list, ...store.runs.map((run, n) => row(run, n, refresh)));
}

function row(run: Run, color: number, refresh: () => Promise<void>): HTMLElement {
  const box = h("input", { type: "checkbox", "aria-label": `Compare ${run.name}`, checked: compared.has(run.name) });
  box.addEventListener("change", () => {
    if (box.checked) compared.add(run.name); else compared.delete(run.name);
    void refresh();
  });
  const swatch = h("i", { "aria-hidden": "true" });
  swatch.style.background = css(categoryColor(color));
  const act = (address: string, body: object, text: string): void => void attempt(async () => { await post(address, { run: run.name, ...body }); say(text); });
  const there = run.epochs !== undefined;
  return h("li", { class: `run ${run.status}` },
    h("label", {}, box, swatch, h("b", {}, run.name)),
    h("small", { title: run.reason ?? "" }, there ? `${run.method}, ${run.status}, epoch ${run.epoch} of ${run.epochs}` : `${run.status}${run.reason ? `: ${run.reason}` : ""}`),
    h("div", { class: "row" },
      run.status === "running" && h("button", { type: "button", onclick: () => act("/api/runs/stop", {}, `${run.name} stops after its step.`) }, "Stop"),
      there && run.status !== "running" && h("button", { type: "button", onclick: () => act("/api/runs/resume", run.status === "done" ? { epochs: 2 * run.epochs! } : {}, `${run.name} goes on.`) }, run.status === "done" ? `Train to ${2 * run.epochs!}` : "Resume"),
      there && (run.epoch ?? 0) > 0 && h("button", { type: "button", class: "see", onclick: () => act("/api/runs/see", {}, "The images are being seen by this run; the map will move.") }, "See by it"),
      there && h("a", { class: "chip", href: `/api/runs/page?run=${encodeURIComponent(run.name)}`, target: "_blank", rel: "noopener" }, "Page")));
}

async function drawCharts(charts: HTMLElement): Promise<void> {
  const names = store.runs.filter(run => compared.has(run.name) && run.epochs !== undefined).map(run => run.name);
  await Promise.all(names.map(async name => {
    try { histories.set(name, await getJson<History>(`/api/runs/history?run=${encodeURIComponent(name)}`)); } catch { /* it is being written */ }
  }));
  const keys = new Map<string, { title: string; about: string; lines: Line[] }>();
  for (const name of names) {
    const color = store.runs.findIndex(run => run.name === name);
    for (const curve of histories.get(name)?.curves ?? []) {
      if (!keys.has(curve.key)) keys.set(curve.key, { title: curve.title, about: curve.about, lines: [] });
      keys.get(curve.key)!.lines.push({ name, points: curve.points, color });
    }
  }
  const shown = FIRST.filter(key => keys.has(key)).slice(0, 8).map(key => keys.get(key)!);
  fill(charts, ...shown.map(each => lineChart(each.title, each.about, each.lines)));
}

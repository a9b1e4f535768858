// The two temperatures at work: which of the selected anchors, and which negatives, carry the gradient.

import { attempt, post } from "./api";
import { noColor, rampColor } from "./colors";
import { debounce, fill, h, many } from "./dom";
import { Emphasis, PointMap } from "./map";
import { picture } from "./settle_panel";
import { store } from "./store";
import { Turns } from "./turns";

interface Weighed {
  anchors: number[]; W: number[]; share: number[]; keys: number[]; carried: number[];
  hardest_tenth: number; effective_anchors: number; effective_keys: number;
}

// About even on a logarithmic scale.
const TAUS = [0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.4, 0.5, 0.7, 1, 1.4, 2, 3, 5, 10, 100];

export function temperaturePanel(map: PointMap): HTMLElement {
  let anchors: number[] = [];
  const turns = new Turns();
  const slider = (id: string, value: number): HTMLInputElement => h("input", { type: "range", id, min: 0, max: TAUS.length - 1, step: 1, value: TAUS.indexOf(value) });
  const alpha = slider("alpha", 0.1), beta = slider("beta", 1), alphaText = h("output", { for: "alpha" }), betaText = h("output", { for: "beta" });
  const result = h("div", { id: "weighed" }), start = h("button", { type: "button", class: "main", id: "use-anchors" }, "Take the selection as anchors");
  const end = h("button", { type: "button", hidden: true }, "Back to the map");
  const texts = (): void => {
    for (const [input, text, says] of [[alpha, alphaText, "negatives"], [beta, betaText, "anchors"]] as const) {
      text.textContent = String(TAUS[Number(input.value)]);
      input.setAttribute("aria-valuetext", `${TAUS[Number(input.value)]}, weighs ${says}`);
    }
  };
  const weigh = async (): Promise<void> => {
    const isNewest = turns.take();
    if (!anchors.length) return;
    const found = await attempt(() => post<Weighed>("/api/temperatures", { ids: anchors, tau_alpha: TAUS[Number(alpha.value)], tau_beta: TAUS[Number(beta.value)] }));
    if (found && isNewest()) { map.setEmphasis(emphasis(found)); draw(result, found); end.hidden = false; }
  };
  const soon = debounce(60, () => void weigh());
  for (const input of [alpha, beta]) input.addEventListener("input", () => { texts(); soon(); });
  start.addEventListener("click", () => {
    anchors = store.targets().slice(0, 2000);
    if (!anchors.length) return fill(result, h("p", { class: "quiet" }, "Select some images first."));
    fill(result, h("p", { class: "quiet" }, "Two views of each are being encoded\u2026"));
    void weigh();
  });
  end.addEventListener("click", () => { turns.take(); anchors = []; map.setEmphasis(null); end.hidden = true; fill(result); });
  const all = h("button", { type: "button", id: "weigh-all", onclick: () => void attempt(() => post("/api/weigh", { tau_beta: TAUS[Number(beta.value)] })) }, "Compute W of every image");
  texts();
  return h("div", {},
    h("h3", {}, "The two temperatures at work"),
    h("p", { class: "quiet" }, "An anchor\u2019s gradient is a scalar W, at \u03c4 beta, times a vector that weighs its negatives, at \u03c4 alpha. Cosines are those of the encoder\u2019s features."),
    h("label", { class: "slide" }, h("span", {}, "\u03c4 alpha, among negatives"), alphaText, alpha),
    h("label", { class: "slide" }, h("span", {}, "\u03c4 beta, among anchors"), betaText, beta),
    h("div", { class: "row" }, start, end), result,
    h("h3", {}, "W on the map"), h("p", { class: "quiet" }, "How hard each image is as an anchor, against all others; then color by it."), all);
}

function emphasis(found: Weighed): Emphasis {
  const none = noColor(), count = store.count;
  const colors = new Uint8Array(3 * count), alpha = new Uint8Array(count).fill(36), sizes = new Uint8Array(count).fill(110);
  for (let i = 0; i < count; i++) colors.set(none, 3 * i);
  const put = (ids: number[], shares: number[], base: number, more: number, hue: (share: number) => number[]): void => {
    const most = Math.max(...shares, 1e-12);
    ids.forEach((id, n) => {
      const share = shares[n] / most;
      colors.set(hue(share), 3 * id);
      alpha[id] = Math.round(70 + 185 * Math.sqrt(share));
      sizes[id] = Math.round(Math.min(255, base + more * Math.sqrt(share)));
    });
  };
  put(found.keys, found.carried, 80, 130, share => rampColor(0.15 + 0.45 * share));
  put(found.anchors, found.share, 130, 125, () => [224, 102, 47]);
  return { colors, alpha, sizes, top: [...found.keys, ...found.anchors] };
}

function draw(element: HTMLElement, found: Weighed): void {
  const bars = (ids: number[], shares: number[], kind: string): HTMLElement => {
    const order = ids.map((_, n) => n).sort((a, b) => shares[b] - shares[a]).slice(0, 6), most = shares[order[0]] || 1;
    return h("ul", { class: `bars ${kind}` }, ...order.map(n => {
      const bar = h("i", {});
      bar.style.width = `${100 * shares[n] / most}%`;
      return h("li", {}, picture(ids[n], 36), h("span", { class: "bar" }, bar), h("small", {}, `${(100 * shares[n]).toFixed(1)} %`));
    }));
  };
  fill(element,
    h("p", {}, "The hardest tenth of ", h("b", {}, many(found.anchors.length, "anchor")), " carries ", h("b", { id: "hardest" }, `${(100 * found.hardest_tenth).toFixed(0)} %`), ` of the gradient; it is spread as over ${found.effective_anchors.toFixed(1)} equal anchors.`),
    bars(found.anchors, found.share, "anchors"),
    h("p", {}, "Of ", h("b", {}, many(found.keys.length, "negative")), `, the push comes as from ${found.effective_keys.toFixed(0)} equal ones; the strongest:`),
    bars(found.keys, found.carried, "negatives"));
}

// The explorer: what the sliders choose, what follows from it (hardness.js, anchor_weights.js), and how it is shown. `data` is set by explorer.html.j2.
const $ = id => document.getElementById(id);
const SHOWN = 16;  // negatives in the list
const floats = words => new Float32Array(Uint8Array.from(atob(words), c => c.charCodeAt(0)).buffer);
const positive = floats(data.positive), negatives = floats(data.negatives), N = positive.length, K = negatives.length / N;
const anchorIds = Array.from(positive.keys());
const row = (i, keys) => negatives.subarray(i * K, i * K + keys);  // to the newest keys
const state = {alpha: 0, beta: 0, size: 0, anchor: 0, tied: false, bars: "r", weight: "sigmoid"};

const tauOf = index => index < data.taus.length ? data.taus[index] : Infinity;
const indexOf = tau => {  // of the nearest temperature on the slider
  if (tau === Infinity) return data.taus.length;
  const away = data.taus.map(value => Math.abs(Math.log(value / tau)));
  return away.indexOf(Math.min(...away));
};
const sizeIndex = keys => Math.max(0, data.sizes.findLastIndex(size => size <= keys));
const tauText = tau => tau === Infinity ? "∞" : String(tau);
const percent = share => `${(100 * share).toPrecision(share < .0095 ? 2 : 3)} %`.replace("100.0", "100");
const amount = value => value >= 99.95 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
const imageName = (part, i) => [part.labels[i], part.names[i]].filter(Boolean).join(" · ");

function tile(element, number) {
  element.style.setProperty("--c", number % data.columns);
  element.style.setProperty("--r", Math.floor(number / data.columns));
}

function read(id, value, words) {  // shown rounded, kept whole
  $(id).textContent = words;
  $(id).dataset.value = value;
}

// A member of the family is a weight; "tied" is the sigmoid at one temperature.
const chosenMember = () => state.weight === "sigmoid" && state.tied ? "tied" : state.weight;

function weighed(member, tau_alpha, tau_beta, keys) {  // all anchors under a member
  const weigh = WEIGHTS[member === "tied" ? "sigmoid" : member], beta = member === "tied" ? tau_alpha : tau_beta;
  const anchors = anchorIds.map(i => weigh({s: positive[i], negatives: row(i, keys), all: row(i, K)}, tau_alpha, beta, data.kept));
  const r = softmax(anchors.map(anchor => anchor.log));
  // log-odds order the anchors where W is 1 to the last digit
  const order = [...anchorIds].sort((a, b) => anchors[b].d - anchors[a].d || a - b);
  return {r, order, W: anchors.map(anchor => Math.exp(anchor.log)), taus: anchors.map(anchor => anchor.tau), H: entropy(r), tenth: hardestShare(r, order)};
}

function computed() {
  const tau_alpha = tauOf(state.alpha), tau_beta = tauOf(state.beta), keys = data.sizes[state.size];
  const found = weighed(chosenMember(), tau_alpha, tau_beta, keys);
  const effective = anchorIds.map(i => Math.exp(negativesEntropy(row(i, keys), found.taus[i])));
  return {
    tau_alpha, tau_beta, keys, effective, ...found,
    p: intraAnchorWeights(row(state.anchor, keys), found.taus[state.anchor]),
    mean: effective.reduce((sum, value) => sum + value, 0) / N,
  };
}

const span = values => [Math.min(...values), Math.max(...values)].map(value => value.toPrecision(3)).join(" to ");
const KEPT = `Shown is the second visit of each image: at its first it met all ${K.toLocaleString("en")} keys of this page`;
const MEMBERS = {  // formula and what is shown; what the weights do, in words; how the sentence begins
  tied: {about: () => "w = sigmoid(d(tau)) = W.", starts: "One temperature"},
  sigmoid: {about: () => "w = sigmoid(d(tau_beta)) = W.", starts: "Two temperatures"},
  equal: {about: () => "w = 1 for every anchor; tau_beta is not used.", starts: "Equal weights", says: () => `every anchor weighs 1, so all ${N} count the same, easy ones too`},
  memory: {
    about: () => `w = G / u, where G is the mean of exp((s_j - s_+) / tau_alpha) and u its moving average for the image; tau_beta is not used. ${KEPT}, which started its u; now it meets the dictionary, with gamma ${data.kept.gamma}. With all keys both visits are the same, and w = 1.`,
    starts: "A memory of each image",
    says: now => `weights go from ${span(now.W)}: an anchor weighs more than 1 where this dictionary is harder for it than all keys are`,
  },
  per_image: {
    about: now => `w = tau_i / tau_alpha x G / u, and the negatives are weighed at tau_i; tau_beta is not used. ${KEPT}, which started its u and moved its tau_i once, from tau_alpha (gamma ${data.kept.gamma}, rho ${data.kept.rho}, tau_lr ${data.kept.tau_lr}).` +
      (now.tau_alpha < data.kept.tau_min || now.tau_alpha > data.kept.tau_max ? ` The loss takes tau_alpha from ${data.kept.tau_min} to ${data.kept.tau_max} only: the nearer of the two is shown.` : ""),
    starts: "A temperature for each image",
    says: now => `weights go from ${span(now.W)}`,
  },
};

const EVEN = hardestTenth(N) / N;
const ALIKE = .97, FEW = .8, PICKED = .3, MORE = .75;  // effective anchors and negatives, as parts of all
function sentence(now) {
  const anchors = Math.exp(now.H) / N, keys = now.mean / now.keys;
  const member = MEMBERS[chosenMember()], own = state.weight === "per_image";
  const vector = `${own ? `tau_i from ${span(now.taus)} let` : `tau_alpha ${tauText(now.tau_alpha)} lets`} ${amount(now.mean)} of ${now.keys.toLocaleString("en")} negatives of an anchor count: ` +
    (keys < PICKED ? "the hard ones stand out" : keys < MORE ? "the hard ones count more" : "hard and easy ones count nearly equally");
  const scalar = `tau_beta ${tauText(now.tau_beta)} lets ${amount(N * anchors)} of ${N} anchors count: ` +
    (anchors < FEW ? "easy anchors hardly learn" : anchors < ALIKE ? "hard anchors learn more than easy ones" : "all anchors learn nearly equally");
  if (member.says) return `${member.starts}: ${vector}; ${member.says(now)}.`;
  const picks = keys < MORE, even = anchors >= ALIKE;
  const end = !state.tied ? (picks && even ? "Hard negatives stand out from easy ones, and yet all anchors learn: each temperature does one job." : "")
    : picks && even ? "Here one temperature does both jobs: the negatives of every anchor together outweigh its positive (W is near 1). With fewer keys, or after more training, they no longer do."
    : picks ? "One temperature cannot do both jobs here: raise it, and the anchors even out, but hard negatives no longer stand out from easy ones. Untie them, or use more keys."
    : even ? "One temperature cannot do both jobs here: lower it, and hard negatives stand out, but the weight falls on fewer anchors."
    : "One temperature, and here it does neither job.";
  return `${member.starts}: ${vector}; ${scalar}. ${end}`;
}

function showAnchors(now) {
  const values = now[state.bars], most = Math.max(...values, state.bars === "r" ? 0 : 1);
  const columns = $("profile").querySelectorAll("i"), buttons = $("anchors").children;
  now.order.forEach((i, place) => {
    const button = buttons[place], words = `anchor ${i + 1}, ${imageName(data.anchors, i)}: W ${now.W[i].toPrecision(3)}, share ${percent(now.r[i])}`;
    columns[place].style.height = `${100 * values[i] / most}%`;
    columns[place].className = i === state.anchor ? "here" : "";
    Object.assign(button.dataset, {anchor: i, w: now.W[i], r: now.r[i]});
    button.setAttribute("aria-pressed", String(i === state.anchor));
    button.setAttribute("aria-label", words);
    button.title = words;
    tile(button.firstChild, data.anchors.views[i][0]);
    button.lastChild.firstChild.style.width = `${100 * values[i] / most}%`;
  });
  $("profile").querySelector("hr").style.bottom = `${100 * (state.bars === "r" ? 1 / N : 1) / most}%`;
  $("profile-scale").textContent = state.bars === "r" ? `a bar at the dashed line has an equal share, ${percent(1 / N)}` : "a bar up to the dashed line has W = 1";
  read("entropy", now.H, now.H.toFixed(3));
  read("effective-anchors", Math.exp(now.H), amount(Math.exp(now.H)));
  read("maximum", Math.log(N), Math.log(N).toFixed(3));
  read("tenth", now.tenth, percent(now.tenth));
  read("tenth-even", EVEN, percent(EVEN));
  const mean = now.W.reduce((sum, W) => sum + W, 0) / N;
  read("mean-W", mean, mean.toPrecision(3));
}

function showNegatives(now) {
  const i = state.anchor, s = row(i, now.keys), order = Array.from(s.keys()).sort((a, b) => s[b] - s[a] || a - b).slice(0, SHOWN), most = now.p[order[0]];
  tile($("anchor-view"), data.anchors.views[i][0]);
  tile($("positive-view"), data.anchors.views[i][1]);
  $("chosen-text").innerHTML = `<b>${text(imageName(data.anchors, i))}</b><br>s<sub>i+</sub> ${positive[i].toFixed(3)}, W ${now.W[i].toPrecision(3)}<br>` +
    `r<sub>+</sub> ${percent(now.r[i])}, ${(now.r[i] * N).toPrecision(3)} of an equal share<br>place ${now.order.indexOf(i) + 1} of ${N} in hardness` +
    (state.weight === "per_image" ? `<br>tau_i ${now.taus[i].toPrecision(3)}` : "");
  read("effective", now.effective[i], amount(now.effective[i]));
  read("effective-mean", now.mean, amount(now.mean));
  read("keys-used", now.keys, now.keys.toLocaleString("en"));
  [...$("negatives").children].forEach((item, place) => {
    const j = order[place];
    item.hidden = j === undefined;
    if (item.hidden) return;
    Object.assign(item.dataset, {key: j, p: now.p[j], s: s[j]});
    tile(item.children[0], data.keys.pictures[j]);
    item.querySelector(".meter i").style.width = `${100 * now.p[j] / most}%`;
    item.querySelector("hr").style.left = `${Math.min(100, 100 / now.keys / most)}%`;
    item.children[2].innerHTML = `<span class="called" title="${text(imageName(data.keys, j)).replace(/"/g, "&quot;")}">${text(imageName(data.keys, j))}</span><b>p̂ ${percent(now.p[j])}</b> s ${s[j].toFixed(3)}`;
  });
  const shown = order.reduce((sum, j) => sum + now.p[j], 0), left = now.keys - order.length;
  $("rest").textContent = `${left > 0 ? `The other ${left.toLocaleString("en")} together: ${percent(Math.max(0, 1 - shown))}. ` : ""}A bar up to its dashed line has an equal share, ${percent(1 / now.keys)}.`;
}

const curves = {};
function curvesOf(keys) {  // [tau, entropy of r_+] and [tau, mean effective negatives]; a third of a second for many keys, so once
  if (!curves[keys]) {
    const taus = [...data.taus.filter((_, i) => i % 2 === 0 || i === data.taus.length - 1), Infinity];
    curves[keys] = {
      entropy: taus.map(tau => [tau, entropy(relativePenalty(anchorIds.map(i => logOdds(positive[i], row(i, keys), tau))))]),
      effective: taus.map(tau => [tau, anchorIds.reduce((sum, i) => sum + Math.exp(negativesEntropy(row(i, keys), tau)), 0) / N]),
    };
  }
  return curves[keys];
}

function showCurves(now) {
  const these = curvesOf(now.keys), all = curvesOf(data.sizes[data.sizes.length - 1]), top = Math.log(N);
  const lowest = Math.min(now.H, top - .003, ...these.entropy.concat(all.entropy).map(point => point[1])), third = (top - lowest) / 3;
  const digits = third < .01 ? 3 : 2;  // labels differ, and rounding noise is drawn flat
  const mark = (name, y, acting) => ({name, tau: now[`tau_${name}`], y, acting});
  drawChart($("entropy-curve"), {
    title: `entropy of r₊, nats (${now.keys.toLocaleString("en")} keys)`, taus: data.taus, logarithmic: false,
    lines: [{name: "all", values: all.entropy}, {name: "these", values: these.entropy}],
    // only the sigmoid is a curve over tau_beta
    marks: state.weight === "sigmoid" ? [mark("alpha", 0, false), mark("beta", now.H, true)] : [],
    level: state.weight === "sigmoid" ? null : now.H,
    ticks: N > 1 ? [0, 1, 2, 3].map(i => [lowest + third * i, i === 3 ? `log ${N}` : (lowest + third * i).toFixed(digits)]) : [[0, "0"], [1, "1"]],
  });
  const powers = [1];
  while (powers[powers.length - 1] * 8 < now.keys) powers.push(powers[powers.length - 1] * 8);
  drawChart($("effective-curve"), {
    title: `effective negatives, mean (${now.keys.toLocaleString("en")} keys)`, taus: data.taus, logarithmic: true,
    lines: [{name: "these", values: these.effective}],
    marks: [...(state.weight === "sigmoid" ? [mark("beta", 0, false)] : []), mark("alpha", now.mean, true)],
    ticks: [...new Set([...powers, now.keys])].map(y => [y, y.toLocaleString("en")]),
  });
}

function showFamily(now) {  // every member at the same temperatures and keys
  for (const line of $("family").rows) {
    const {W, r, H, tenth} = weighed(line.dataset.member, now.tau_alpha, now.tau_beta, now.keys), i = state.anchor;
    Object.assign(line.dataset, {w: W[i], r: r[i], effective: Math.exp(H), tenth});
    line.setAttribute("aria-current", String(line.dataset.member === chosenMember()));
    [W[i].toPrecision(3), percent(r[i]), amount(Math.exp(H)), percent(tenth)].forEach((words, place) => { line.cells[place + 1].textContent = words; });
  }
}

let lastPreset = null;
function showControls(now) {
  const has_beta = state.weight === "sigmoid";
  $("beta").disabled = $("tie").disabled = !has_beta;
  $("weight").value = chosenMember();
  $("weight-about").textContent = MEMBERS[chosenMember()].about(now);
  $("weighed-by").textContent = has_beta ? "tau_beta and dictionary" : state.weight === "equal" ? "all the same" : "tau_alpha and dictionary";
  for (const [id, value, words] of [["alpha", state.alpha, tauText(now.tau_alpha)], ["beta", state.beta, has_beta ? tauText(now.tau_beta) : "off"], ["size", state.size, now.keys.toLocaleString("en")]]) {
    $(id).value = value;
    $(id).setAttribute("aria-valuetext", {"∞": "infinity", "off": "not used"}[words] ?? words);
    $(`${id}-value`).textContent = words;
  }
  $("tie").checked = state.tied;
  document.querySelectorAll("[name=bars]").forEach(input => { input.checked = input.value === state.bars; });
  const presets = [...document.querySelectorAll(".preset")], fitting = presets.filter(button =>
    indexOf(Number(button.dataset.alpha)) === state.alpha && indexOf(Number(button.dataset.beta)) === state.beta &&
    sizeIndex(Number(button.dataset.keys)) === state.size && (button.dataset.tied === "1") === state.tied && button.dataset.weight === state.weight);
  const pressed = fitting.includes(lastPreset) ? lastPreset : fitting[0];  // two may choose the same
  presets.forEach(button => button.setAttribute("aria-pressed", String(button === pressed)));
}

let writing = 0;
function show(remember = true) {
  const now = computed();
  showControls(now);
  showAnchors(now);
  showNegatives(now);
  showCurves(now);
  showFamily(now);
  $("sentence").textContent = sentence(now);
  if (!remember) return;
  clearTimeout(writing);  // browsers refuse many changes of the address in a short time
  writing = setTimeout(() => {
    const words = new URLSearchParams({alpha: now.tau_alpha, beta: now.tau_beta, keys: now.keys, anchor: state.anchor + 1, tied: Number(state.tied), bars: state.bars, weight: state.weight});
    history.replaceState(null, "", `#${words}`);
  }, 250);
}

function choose({alpha, beta, keys, tied, anchor, bars, weight}) {  // temperatures, counts and words, not places on a slider
  const number = (value, least) => value !== null && value !== undefined && Number(value) >= least ? Number(value) : null;
  if (number(alpha, 1e-9) !== null) state.alpha = Math.min(indexOf(number(alpha, 1e-9)), data.taus.length - 1);
  if (number(beta, 1e-9) !== null) state.beta = indexOf(number(beta, 1e-9));
  if (number(keys, 1) !== null) state.size = sizeIndex(number(keys, 1));
  if (number(anchor, 1) !== null) state.anchor = Math.min(N, Math.floor(number(anchor, 1))) - 1;
  if (tied !== null && tied !== undefined) state.tied = Number(tied) === 1;
  if (bars === "r" || bars === "W") state.bars = bars;
  if (Object.hasOwn(WEIGHTS, weight ?? "")) state.weight = weight;
  if (state.weight !== "sigmoid") state.tied = false;  // no tau_beta to tie
  if (state.tied) state.beta = state.alpha;
}

const fromAddress = () => choose(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));

for (const i of anchorIds) {
  const button = document.createElement("button");
  button.type = "button";
  button.innerHTML = '<i class="tile"></i><span class="meter"><i></i></span>';
  $("anchors").append(button);
  $("profile").append(document.createElement("i"));
}
$("profile").append(document.createElement("hr"));
$("negatives").innerHTML = '<li><i class="tile" aria-hidden="true"></i><span class="meter"><i></i><hr></span><span class="numbers"></span></li>'.repeat(Math.min(SHOWN, K));
$("alpha").max = data.taus.length - 1;
$("beta").max = data.taus.length;
$("size").max = data.sizes.length - 1;

$("alpha").addEventListener("input", () => { state.alpha = Number($("alpha").value); if (state.tied) state.beta = state.alpha; show(); });
$("beta").addEventListener("input", () => {
  state.beta = Number($("beta").value);
  if (state.tied) state.alpha = state.beta = Math.min(state.beta, data.taus.length - 1);  // tau_alpha is finite
  show();
});
$("size").addEventListener("input", () => { state.size = Number($("size").value); show(); });
$("tie").addEventListener("change", () => { choose({tied: $("tie").checked ? 1 : 0}); show(); });
$("weight").addEventListener("change", () => {
  const member = $("weight").value;
  choose(member === "tied" ? {weight: "sigmoid", tied: 1} : {weight: member, tied: 0});
  show();
});
document.querySelectorAll("[name=bars]").forEach(input => input.addEventListener("change", () => { choose({bars: input.value}); show(); }));
document.querySelectorAll(".preset").forEach(button => button.addEventListener("click", () => { lastPreset = button; choose({...button.dataset}); show(); }));
$("anchors").addEventListener("click", event => {
  const button = event.target.closest("button");
  if (button) { state.anchor = Number(button.dataset.anchor); show(); }
});
$("profile").addEventListener("click", event => {
  const place = [...$("profile").querySelectorAll("i")].indexOf(event.target);
  if (place >= 0) { state.anchor = Number($("anchors").children[place].dataset.anchor); show(); }
});
addEventListener("resize", () => show(false));
addEventListener("hashchange", () => { fromAddress(); show(false); });

choose(data.start);
state.anchor = computed().order[0];
fromAddress();
show(false);

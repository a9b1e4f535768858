// The algebra of hardness.py in double precision. Similarities are rows of a Float32Array; tau may be Infinity.
function logSumExp(s, tau) {
  if (tau === Infinity) return Math.log(s.length);
  let most = -Infinity, sum = 0;
  for (const value of s) if (value > most) most = value;
  for (const value of s) sum += Math.exp((value - most) / tau);
  return most / tau + Math.log(sum);
}

const logOdds = (positive, negatives, tau) => logSumExp(negatives, tau) - (tau === Infinity ? 0 : positive / tau);  // d_i
const logSigmoid = d => d > 0 ? -Math.log1p(Math.exp(-d)) : d - Math.log1p(Math.exp(d));  // log W_i
const softmax = logs => {
  const most = Math.max(...logs), exponentials = logs.map(value => Math.exp(value - most));
  const sum = exponentials.reduce((total, value) => total + value, 0);
  return exponentials.map(value => value / sum);
};
const relativePenalty = odds => softmax(odds.map(logSigmoid));  // r_+ of all anchors
const entropy = shares => shares.reduce((total, share) => share > 0 ? total - share * Math.log(share) : total, 0);
const intraAnchorWeights = (negatives, tau) => {  // p^_ij of one anchor, Float64Array
  const total = logSumExp(negatives, tau);
  return Float64Array.from(negatives, value => Math.exp((tau === Infinity ? 0 : value / tau) - total));
};

function negativesEntropy(negatives, tau) {  // of p^_ij of one anchor, in one pass; no difference of large numbers
  if (tau === Infinity) return Math.log(negatives.length);
  let most = -Infinity, sum = 0, below = 0;
  for (const value of negatives) if (value > most) most = value;
  for (const value of negatives) {
    const x = (value - most) / tau, e = Math.exp(x);
    sum += e;
    below -= e * x;
  }
  return Math.log(sum) + below / sum;
}

const hardestTenth = anchors => Math.ceil(anchors / 10);
// of the weight, carried by the hardest tenth of the anchors; order: the hardest first
const hardestShare = (r, order) => order.slice(0, hardestTenth(r.length)).reduce((total, i) => total + r[i], 0);

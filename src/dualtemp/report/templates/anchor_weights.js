// What an anchor weighs under each member of the family: weights.py and image_memory.py in double precision.
// The last two keep numbers per image. Shown is an image's second visit; at its first it met all keys of the page.
const logAddExp = (a, b) => Math.max(a, b) + Math.log1p(Math.exp(-Math.abs(a - b)));
const logMean = (s, negatives, tau) => logOdds(s, negatives, tau) - Math.log(negatives.length);  // log G_i
const logAverage = (before, log_g, gamma) => gamma < 1 ? logAddExp(before + Math.log1p(-gamma), log_g + Math.log(gamma)) : log_g;  // log u_i

function slope(s, negatives, tau) {  // sum_j p^_ij (s_ij - s_i+) / tau
  const p = intraAnchorWeights(negatives, tau);
  return negatives.reduce((sum, value, j) => sum + p[j] * (value - s) / tau, 0);
}

function movedTemperature(s, all, start, kept) {  // tau_i after the first visit, where w is 1
  const derivative = (1 - kept.tau_momentum) * (logMean(s, all, start) + kept.rho - slope(s, all, start));
  return Math.min(Math.max(start - kept.tau_lr * derivative, kept.tau_min), kept.tau_max);
}

// Of an anchor with similarity s to its positive, to the negatives, and to all keys: log, the logarithm of its weight; d, its log-odds, by
// which hardness is ordered; tau, the temperature of its vector. kept: settings of the weights that are kept per image.
const WEIGHTS = {
  sigmoid({s, negatives}, tau_alpha, tau_beta) {
    const d = logOdds(s, negatives, tau_beta);
    return {log: logSigmoid(d), d, tau: tau_alpha};
  },
  equal: ({s, negatives}, tau_alpha) => ({log: 0, d: logOdds(s, negatives, tau_alpha), tau: tau_alpha}),
  memory({s, negatives, all}, tau_alpha, tau_beta, kept) {
    const log_g = logMean(s, negatives, tau_alpha), log_u = logAverage(logMean(s, all, tau_alpha), log_g, kept.gamma);
    return {log: log_g - log_u, d: logOdds(s, negatives, tau_alpha), tau: tau_alpha};
  },
  per_image({s, negatives, all}, tau_alpha, tau_beta, kept) {
    const start = Math.min(Math.max(tau_alpha, kept.tau_min), kept.tau_max), tau = movedTemperature(s, all, start, kept);
    const log_g = logMean(s, negatives, tau), log_u = logAverage(logMean(s, all, start), log_g, kept.gamma);
    return {log: Math.log(tau / start) + log_g - log_u, d: logOdds(s, negatives, tau), tau};
  },
};

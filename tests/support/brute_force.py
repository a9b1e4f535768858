"""The losses as the paper writes them: float64, whole matrices, masked sums over negatives, gradients by autograd.

Nothing here is shared with the package. Sums over negatives are taken apart from the positive (never 1 - p), and
exponentials are plain: float64 holds e^(1 / 0.01).
"""

import math

import torch
from torch import Tensor


def unit(x: Tensor) -> Tensor:
    x = x.double()
    return x / x.pow(2).sum(-1, keepdim=True).sqrt()


def exponential(s: Tensor, tau: float) -> Tensor:
    return torch.ones_like(s) if math.isinf(tau) else torch.exp(s / tau)


def odds(positive: Tensor, negatives: Tensor, mask: Tensor, tau: float) -> Tensor:
    """Sum over negatives divided by the positive, at tau: W = odds / (1 + odds), p_+ = 1 / (1 + odds)."""
    return (exponential(negatives, tau) * mask).sum(-1) / exponential(positive, tau)


def weight(positive: Tensor, negatives: Tensor, mask: Tensor, tau: float) -> Tensor:
    r = odds(positive, negatives, mask, tau)
    return r / (1 + r)


def dual(positive: Tensor, negatives: Tensor, mask: Tensor, tau_alpha: float, tau_beta: float) -> Tensor:
    """eq:alter_imple for each anchor, from similarities; the quotient of weights is a constant."""
    w_alpha, w_beta = (weight(positive, negatives, mask, tau).detach() for tau in (tau_alpha, tau_beta))
    return w_beta / w_alpha * torch.log1p(odds(positive, negatives, mask, tau_alpha))


def in_batch(q: Tensor, k: Tensor, both_views: bool) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Positive (N,), similarities (N, K) and the mask of negatives, for the anchors of q and of k."""
    q, k = unit(q), unit(k)
    others = 1 - torch.eye(len(q), dtype=torch.float64)
    result = []
    for anchors, keys in ((q, k), (k, q)):
        s, mask = anchors @ keys.T, others
        positive = s.diagonal()
        if both_views:
            s, mask = torch.cat((s, anchors @ anchors.T), 1), torch.cat((others, others), 1)
        result.append((positive, s, mask))
    return result


def dual_temperature(
    q: Tensor, k: Tensor, tau_alpha: float, tau_beta: float, both_directions: bool = True, both_views: bool = False
) -> Tensor:
    values = [dual(*parts, tau_alpha, tau_beta) for parts in in_batch(q, k, both_views)]
    return (values[0] + values[1]) / 2 if both_directions else values[0]


def nt_xent(q: Tensor, k: Tensor, tau: float) -> Tensor:
    first, second = (torch.log1p(odds(*parts, tau)) for parts in in_batch(q, k, both_views=True))
    return (first + second) / 2


def with_dictionary(q: Tensor, k_pos: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, s = unit(q), unit(q) @ unit(negatives).T
    return (q * unit(k_pos)).sum(-1), s, torch.ones_like(s)


def info_nce(q: Tensor, k_pos: Tensor, negatives: Tensor, tau: float) -> Tensor:
    return torch.log1p(odds(*with_dictionary(q, k_pos, negatives), tau))


def decomposed(
    q: Tensor, k_pos: Tensor, vector_keys: Tensor, scalar_keys: Tensor, tau_alpha: float, tau_beta: float
) -> Tensor:
    """eq:infonce_nss_equiva with the sign that descends, for each anchor; gradient on similarities."""
    positive, s, _ = with_dictionary(q, k_pos, vector_keys)
    p_hat = (exponential(s, tau_alpha) / exponential(s, tau_alpha).sum(-1, keepdim=True)).detach()
    w = weight(*with_dictionary(q, k_pos, scalar_keys), tau_beta).detach()
    return -w * (positive - (p_hat * s).sum(-1)) / tau_alpha


def equal_anchors(q: Tensor, k_pos: Tensor, negatives: Tensor, tau_alpha: float) -> Tensor:
    positive, s, _ = with_dictionary(q, k_pos, negatives)
    p_hat = (exponential(s, tau_alpha) / exponential(s, tau_alpha).sum(-1, keepdim=True)).detach()
    return -(positive - (p_hat * s).sum(-1)) / tau_alpha


def simple(q: Tensor, k_pos: Tensor, negatives: Tensor) -> Tensor:
    positive, s, _ = with_dictionary(q, k_pos, negatives)
    return -positive + s.mean(-1)


def cross_entropy(logits: Tensor, target: Tensor, tau_alpha: float, tau_beta: float) -> Tensor:
    logits = logits.double()
    mask = 1 - torch.nn.functional.one_hot(target, logits.shape[1]).double()
    return dual(logits.gather(1, target[:, None])[:, 0], logits, mask, tau_alpha, tau_beta)


class Averages:
    """SogCLR and iSogCLR written down: plain averages u and temperatures tau of every image, in dicts by direction."""

    def __init__(self, gamma: float, tau: float, rho: float = 0.0, bounds: tuple[float, float] | None = None) -> None:
        self.gamma, self.start, self.rho, self.bounds = gamma, tau, rho, bounds
        self.u: dict[tuple[int, int], float] = {}
        self.tau: dict[tuple[int, int], float] = {}
        self.derivative: dict[tuple[int, int], float] = {}

    def step(self, sides: list[tuple[Tensor, Tensor, Tensor]], index: list[int], lr: float, momentum: float) -> Tensor:
        """Loss of each pair of images `index`, from the similarities of one or two directions; moves all averages.

        Without bounds it is SogCLR over tau: log u, with the gradient of log G times G / u. With bounds it is iSogCLR:
        tau_i (log u_i + rho) over the first temperature, with the gradient of tau_i log G_i times G_i / u_i.
        """
        values = []
        for side, (positive, negatives, mask) in enumerate(sides):
            own = torch.tensor(
                [self.tau.get((side, i), self.start) for i in index], dtype=torch.float64, requires_grad=True
            )
            tau = own[:, None]
            G = (torch.exp((negatives - positive[:, None]) / tau) * mask).sum(1) / mask.sum(1)
            first = G.detach().tolist()
            before = G.new_tensor([self.u.get((side, i), first[n]) for n, i in enumerate(index)])
            u = ((1 - self.gamma) * before + self.gamma * G).detach()
            w = (G / u).detach()
            (slope,) = torch.autograd.grad(torch.log(G).sum(), own, retain_graph=True)
            own = own.detach()
            vector = w * own / self.start * (torch.log(G) - torch.log(G).detach())
            values.append(own / self.start * (torch.log(u) + self.rho) + vector)
            derivative = torch.log(u) + self.rho + w * own * slope
            for n, i in enumerate(index):
                moved = momentum * self.derivative.get((side, i), 0.0) + (1 - momentum) * float(derivative[n])
                self.u[side, i], self.derivative[side, i] = float(u[n]), moved
                if self.bounds is not None:
                    low, high = self.bounds
                    self.tau[side, i] = min(max(float(own[n]) - lr * moved, low), high)
        return torch.stack(values).mean(0)


def vicreg(q: Tensor, k: Tensor, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0) -> Tensor:
    """The three terms of VICReg's paper, a pair of dimensions at a time; a single image has covariance 0."""
    q, k = q.double(), k.double()
    N, D = q.shape
    total = invariance * (q - k).pow(2).sum(1).mean() / D
    for z in (q, k):
        C = {}
        for i in range(D):
            for j in range(D):
                C[i, j] = ((z[:, i] - z[:, i].mean()) * (z[:, j] - z[:, j].mean())).sum() / max(N - 1, 1)
        hinges = [(1 - (C[i, i] + 1e-4).sqrt()).clamp(min=0) for i in range(D)]
        squares = [C[i, j] ** 2 for i, j in C if i != j]
        total = total + variance * sum(hinges) / D / 2 + covariance * sum(squares) / D
    return total


def barlow_twins(q: Tensor, k: Tensor, redundancy: float = 0.005) -> Tensor:
    """Barlow Twins' paper, with the batch norm of its published code, a pair of dimensions at a time."""
    q, k = ((z - z.mean(0)) / ((z - z.mean(0)).pow(2).mean(0) + 1e-5).sqrt() for z in (q.double(), k.double()))
    total = torch.zeros((), dtype=torch.float64)
    for i in range(q.shape[1]):
        for j in range(q.shape[1]):
            c = (q[:, i] * k[:, j]).mean()
            total = total + ((1 - c) ** 2 if i == j else redundancy * c**2)
    return total


def similarity_distillation(q: Tensor, k: Tensor, teacher: Tensor, tau_teacher: float, tau_student: float) -> Tensor:
    """KL(P_i || Q_i) (N,), the mean of both views as anchors, by whole matrices without their diagonals."""
    q, k, t = unit(q), unit(k), unit(teacher)
    N = len(q)
    others = ~torch.eye(N, dtype=torch.bool)

    def rows(a: Tensor, b: Tensor, tau: float) -> Tensor:
        return torch.exp((a @ b.T)[others].view(N, N - 1) / tau)

    P = rows(t, t, tau_teacher)
    P = (P / P.sum(1, keepdim=True)).detach()
    each = []
    for anchors, keys in ((q, k), (k, q)):
        Q = rows(anchors, keys, tau_student)
        each.append((torch.special.xlogy(P, P) - torch.special.xlogy(P, Q / Q.sum(1, keepdim=True))).sum(1))
    return (each[0] + each[1]) / 2

"""Group images so that any two in a group are a pair: complete linkage, so a chain of pairs makes no single group."""

from collections import Counter

import numpy as np


def complete_groups(pairs: np.ndarray) -> list[list[int]]:
    """The groups of complete linkage, cut at the least similar pair; each list ascends.

    Two groups merge when all pairs between them are given, the most similar groups first. An image left alone (its
    partners are in groups of which it does not pair with every image) forms a group of two with its most similar
    partner, which is then in two groups. So every image of a pair is in a group.

    Args:
        pairs: (P, 2), no pair twice, the most similar first.

    Returns:
        The groups in the order of their most similar pair.
    """
    cluster_of: dict[int, int] = {}  # by image; a cluster is named after one of its images
    members: dict[int, list[int]] = {}
    between: dict[int, Counter[int]] = {}  # by cluster: pairs seen so far with each other cluster
    first_pair: dict[int, int] = {}  # by cluster: place of its most similar pair
    nearest: dict[int, tuple[int, int]] = {}  # by image: place of its most similar pair, and the partner
    for place, (first, second) in enumerate(pairs.tolist()):
        for image, partner in ((first, second), (second, first)):
            if image not in cluster_of:
                cluster_of[image], members[image], between[image] = image, [image], Counter()
                nearest[image] = (place, partner)
        a, b = cluster_of[first], cluster_of[second]
        between[a][b] += 1
        between[b][a] += 1
        if between[a][b] == len(members[a]) * len(members[b]):
            if len(between[a]) < len(between[b]):
                a, b = b, a  # merge the shorter table into the longer
            first_pair[a] = min(first_pair.get(a, place), first_pair.pop(b, place))
            _merge(a, b, members, cluster_of, between)
    found = [(first_pair[name], sorted(group)) for name, group in members.items() if len(group) > 1]
    for group in members.values():
        if len(group) == 1:
            place, partner = nearest[group[0]]
            found.append((place, sorted((group[0], partner))))
    return [group for _, group in sorted(found)]


def _merge(
    a: int, b: int, members: dict[int, list[int]], cluster_of: dict[int, int], between: dict[int, Counter[int]]
) -> None:
    for image in members[b]:
        cluster_of[image] = a
    members[a] += members.pop(b)
    del between[a][b]
    for other, seen in between.pop(b).items():
        if other != a:
            between[a][other] += seen
            between[other][a] += seen
            del between[other][b]

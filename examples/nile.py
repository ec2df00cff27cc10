"""A level that moves: the flow of the Nile at Aswan, 1871 to 1970, and ten years ahead.

    level of a year ~ Normal(level of the year before, 1 / moves),   flow ~ Normal(level, 1 / noise)

One chain, solved forwards and backwards in one factor. With known precisions it is the Kalman smoother and its bound is the exact
log likelihood; here they are learned. Flows in 10⁸ m³: Cobb (1978), as in Durbin and Koopman (2012), section 2.2.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import natgrad as ng

FLOW = """
1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140 1100 1210 1150 1250 1260 1220 1030
1100 774 840 874 694 940 833 701 916 692 1020 1050 969 831 726 456 824 702 1120 1100 832 764 821 768 845 864 862 698 845 744 796
1040 759 781 865 845 944 984 897 822 1010 771 676 649 846 812 742 801 1040 860 874 848 890 744 749 838 1050 918 986 797 923 975
815 1020 906 901 1170 912 746 919 718 714 740"""


def declared(flow: np.ndarray, moves: object, noise: object) -> ng.Network:
    year = ng.Plate("year", len(flow))
    level = ng.GaussianChain("level", 0.0, 1e-7, 1.0, moves, plate=year)
    return ng.Network(ng.Normal("flow", level[:, 0], noise, plate=year, observed=flow))


def main(figure: str | None = None) -> tuple[float, float, float]:
    flow = np.array(FLOW.split(), dtype=float)
    known = declared(flow, 1 / 1469.1, 1 / 15099.0).fit()
    print(f"log likelihood at the variances of Durbin and Koopman: {known.elbo:.4f}")

    longer = np.append(flow, np.full(10, np.nan))
    fit = declared(longer, ng.Gamma("moves", 1.0, 1000.0), ng.Gamma("noise", 1.0, 10000.0)).fit(max_steps=500)
    spread = {name: float(1 / fit[name].mean()) for name in ("noise", "moves")}
    print(f"{fit.stop}; variances {spread['noise']:.0f} of the noise, {spread['moves']:.0f} of the moves")
    mean, (low, high) = fit["level"].mean()[:, 0], fit["level"].interval(0.9)
    print(
        f"level in 1880 {mean[9]:.0f}, in 1920 {mean[49]:.0f}; in 1980 between {low[-1, 0]:.0f} and {high[-1, 0]:.0f}"
    )

    if figure:
        years = 1871 + np.arange(len(longer))
        picture = Figure(figsize=(9, 3.2), layout="constrained")
        axes = picture.subplots()
        axes.plot(years, longer, ".", color="0.5", label="flow")
        axes.plot(years, mean, color="#4477aa", label="level")
        axes.fill_between(years, low[:, 0], high[:, 0], color="#4477aa", alpha=0.25, label="90 % interval")
        axes.set(xlabel="year", ylabel="10⁸ m³ a year")
        axes.legend()
        picture.savefig(figure, dpi=100)
    return known.elbo, spread["noise"], spread["moves"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="save a picture there")
    main(parser.parse_args().figure)

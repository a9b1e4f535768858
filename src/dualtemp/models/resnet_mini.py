"""A ResNet of three stages that learns on a single CPU core."""

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut; the shortcut is a 1x1 convolution where width or size change."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or width_in != width:
            self.downsample = nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """(N, width_in, H, W) -> (N, width, H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)).add_(shortcut))


class ResNetMini(nn.Module):
    """Stem, three stages of one basic block each, mean over the image: (N, C, H, W) -> (N, 128 x width).

    The stages have 32, 64 and 128 channels times `width`: 0.3 M parameters at 1, 1.2 M at 2, 4.8 M at 4.

    Every stage halves the image, the first one too, so that an image costs little and can be seen often. The stem
    brings images of 16 to 63 px to half their size before that, larger ones to a quarter, and leaves smaller ones (8 px
    digits) as they are. Names of the parameters are those of torchvision's ResNets, the initialization is He's.

    Args:
        image_size: height and width that the stem is laid out for; others can be passed through.
        channels: of the images, default 3.
        width: factor on the channels of all layers, default 1.
    """

    def __init__(self, image_size: int, channels: int = 3, width: int = 1) -> None:
        super().__init__()
        self.num_features = 128 * width
        stride = 1 if image_size < 16 else 2 if image_size < 64 else 4
        # The kernel covers the stride, so that no pixel goes unseen.
        kernel = 3 if stride < 4 else 7
        self.conv1 = nn.Conv2d(channels, 16 * width, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(16 * width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(BasicBlock(16 * width, 32 * width, 2))
        self.layer2 = nn.Sequential(BasicBlock(32 * width, 64 * width, 2))
        self.layer3 = nn.Sequential(BasicBlock(64 * width, 128 * width, 2))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Which parameters belong together, as timm's networks tell it."""
        return {"stem": r"^conv1|bn1", "blocks": r"^layer(\d+)"}

    def forward(self, x: Tensor) -> Tensor:
        """Features (N, num_features) of images (N, C, H, W)."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return x.mean((2, 3))

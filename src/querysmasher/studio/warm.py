"""What every process of Studio has loaded before it forks from the first: imported for its effect alone."""

from querysmasher.spec import template
from querysmasher.studio.tasks import read

read("release.toml", template())

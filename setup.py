"""The package `cube-studio` with its command `cube`."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
REQUIREMENTS = [
    line.strip()
    for line in (HERE / "requirements" / "base.in").read_text().splitlines()
    if line.strip() and not line.startswith(("#", "-"))
]



def shipped(folder: str) -> list[tuple[str, list[str]]]:
    """The files of a folder beside the package, for `share/cube-studio`: `myapp.utils.shipped` finds them there."""
    found: dict[str, list[str]] = {}
    for path in sorted((HERE / folder).rglob("*")):
        place = path.relative_to(HERE)
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in place.parts):
            found.setdefault(f"share/cube-studio/{place.parent.as_posix()}", []).append(place.as_posix())
    return list(found.items())


setup(
    name="cube-studio",
    version="0.1.0",
    description="A multi-tenant platform to build, run and serve machine-learning work of every framework",
    long_description=(HERE / "README.md").read_text() if (HERE / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["myapp", "myapp.*"]),
    include_package_data=True,
    package_data={"myapp": ["py.typed", "templates/**", "static/**", "translations/**", "example/**", "init/**"]},
    data_files=shipped("job-template") + shipped("migrations"),
    install_requires=REQUIREMENTS,
    extras_require={"ldap": ["python-ldap==3.4.8"]},
    entry_points={"console_scripts": ["cube = myapp.cli:main"]},
)

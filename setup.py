"""The package `cube-studio` with its command `cube`."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
REQUIREMENTS = [
    line.strip()
    for line in (HERE / "requirements" / "base.in").read_text().splitlines()
    if line.strip() and not line.startswith(("#", "-"))
]

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
    install_requires=REQUIREMENTS,
    extras_require={"ldap": ["python-ldap==3.4.8"]},
    entry_points={"console_scripts": ["cube = myapp.cli:main"]},
)

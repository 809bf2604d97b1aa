/** The texts of the Debian package that dpkg and lintian read. */

export interface ControlFields {
  version: string
  architecture: string
  sizeKb: number
}

const maintainer = 'Glovebox developers <developers@glovebox.example.org>'

export const control = ({ version, architecture, sizeKb }: ControlFields): string => `Package: glovebox
Version: ${version}
Architecture: ${architecture}
Maintainer: ${maintainer}
Installed-Size: ${sizeKb}
Depends: crun | runc, python3, e2fsprogs, mount, libc6 (>= 2.36), libgcc-s1, libstdc++6
Recommends: ca-certificates, git, ripgrep
Section: net
Priority: optional
Description: self-hosted code execution server for AI agents
 One endpoint on a server of your own where AI agents run code and reach tools.
 It runs Python, Node.js, TypeScript and Bash code in isolated sandboxes, speaks
 MCP and REST, and forwards calls to other MCP servers.
`

/** The service is enabled and started as debhelper does it: https://manpages.debian.org/bookworm/debhelper/dh_installsystemd.1 */
export const scripts: Readonly<Record<string, string>> = {
  postinst: `#!/bin/sh
set -e
if [ "$1" = configure ] || [ "$1" = abort-upgrade ] || [ "$1" = abort-deconfigure ] || [ "$1" = abort-remove ]; then
	deb-systemd-helper unmask glovebox.service >/dev/null || true
	if deb-systemd-helper --quiet was-enabled glovebox.service; then
		deb-systemd-helper enable glovebox.service >/dev/null || true
	else
		deb-systemd-helper update-state glovebox.service >/dev/null || true
	fi
	if [ -d /run/systemd/system ]; then
		systemctl --system daemon-reload >/dev/null || true
		if [ -n "$2" ]; then action=restart; else action=start; fi
		deb-systemd-invoke $action glovebox.service >/dev/null || true
	fi
fi
`,
  prerm: `#!/bin/sh
set -e
if [ -d /run/systemd/system ] && [ "$1" = remove ]; then
	deb-systemd-invoke stop glovebox.service >/dev/null || true
fi
`,
  postrm: `#!/bin/sh
set -e
if [ "$1" = remove ]; then
	if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
	if [ -x "$(command -v deb-systemd-helper)" ]; then deb-systemd-helper mask glovebox.service >/dev/null || true; fi
fi
if [ "$1" = purge ]; then
	if [ -x "$(command -v deb-systemd-helper)" ]; then
		deb-systemd-helper purge glovebox.service >/dev/null || true
		deb-systemd-helper unmask glovebox.service >/dev/null || true
	fi
	# The data of a server is kept: removing it is a decision of its own.
	if [ -d /var/lib/glovebox ]; then echo "glovebox: the data in /var/lib/glovebox was kept" >&2; fi
fi
`,
}

export const copyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: glovebox

Files: *
Copyright: 2026 The Glovebox developers
License: Apache-2.0
 On Debian systems, the full text of the license is in
 /usr/share/common-licenses/Apache-2.0.

Files: usr/lib/glovebox/node_modules/*
Copyright: 2010-2026 The authors of each package
License: various
 Each package has its license in its directory, or names it in the field
 "license" of its package.json.
`

export const changelog = (version: string, date: Date): string => `glovebox (${version}) stable; urgency=medium

  * Release ${version}.

 -- ${maintainer}  ${date.toUTCString().replace('GMT', '+0000')}
`

/** Tags of lintian that describe how this package is meant to be, with the reason of each. */
export const lintianOverrides = `# The guest is process 1 of slots, which may have another C library, or none.
glovebox: statically-linked-binary [usr/lib/glovebox/build/guest]
glovebox: shared-library-lacks-prerequisites [usr/lib/glovebox/build/guest]
# Node.js is newer than that of Debian, and is built with its own libraries.
glovebox: embedded-library *
glovebox: hardening-no-pie *
# These files run in images, where dpkg and the shell are those of the image.
glovebox: uses-dpkg-database-directly *
glovebox: wrong-path-for-interpreter *
`

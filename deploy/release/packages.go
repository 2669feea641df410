package main

import (
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the packager
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the packager
)

// units are the services that a package installs.
var units = []string{"coredns-safebrowsing.service", "safebrowsing-relay.service"}

// configuration are the files in /etc/coredns-safebrowsing, which an upgrade leaves as the
// operator wrote them.
var configuration = []string{"Corefile", "block.txt", "allow.txt", "relay.env"}

// packageArch are the architectures of packages, in the words of nfpm, by target. Debian's
// armhf is built for version 6, so that it runs on the first Raspberry Pi, too.
var packageArch = map[string]string{
	"linux/amd64": "amd64", "linux/arm64": "arm64", "linux/arm/6": "arm6", "linux/386": "386",
}

// packages writes the packages for a target, if it is one of packageArch.
func (r *release) packages(t target) error {
	arch, ok := packageArch[t.String()]
	if !ok {
		return nil
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := writePackage(r.packageInfo(t, arch), format, r.packageName(t, "."+format)); err != nil {
			return err
		}
	}
	return nil
}

// boards are the packages for a Raspberry Pi, by the system that it runs.
var boards = map[string]string{"linux/arm64": "_raspberrypi_64bit", "linux/arm/6": "_raspberrypi_32bit"}

// packageName returns the name of a package of the release. It says which is for a Raspberry Pi.
func (r *release) packageName(t target, ending string) string {
	return r.name(t, boards[t.String()]+ending)
}

// packageInfo describes a package. The server does not have the name of CoreDNS, so that the
// package fits beside another one of CoreDNS.
func (r *release) packageInfo(t target, arch string) *nfpm.Info {
	in := func(name string) string { return filepath.Join(r.source, "deploy/package", name) }
	// Each format has its own way to write that 1.2.3-rc.1 is older than 1.2.3.
	number, prerelease, _ := strings.Cut(r.version, "-")
	info := &nfpm.Info{
		Name: "coredns-safebrowsing", Arch: arch, Platform: "linux", Version: number, Prerelease: prerelease, Release: "1",
		Section: "net", Priority: "optional", Maintainer: "The maintainers of coredns-safebrowsing <coredns-safebrowsing@users.noreply.github.com>",
		Homepage: "https://github.com/coredns-safebrowsing/safebrowsing", License: "Apache-2.0",
		Description: "CoreDNS that protects a network with Google Safe Browsing\n" +
			"A DNS server that blocks phishing, malware and unwanted software. The\ncommand safebrowsing examines it, and safebrowsing-relay serves many servers.",
		MTime: r.time,
	}
	info.Recommends = []string{"ca-certificates"}
	info.RPM.BuildHost = "localhost" // by default the name of this machine
	info.Scripts = nfpm.Scripts{PostInstall: in("postinst"), PreRemove: in("prerm"), PostRemove: in("postrm")}
	r.addContents(info, t)
	return info
}

func (r *release) addContents(info *nfpm.Info, t target) {
	add := func(source, path, kind string, mode fs.FileMode) { r.addFile(info, source, path, kind, mode) }
	add(r.binary(t, "coredns"), "/usr/bin/coredns-safebrowsing", "", 0o755)
	add(r.binary(t, "safebrowsing"), "/usr/bin/safebrowsing", "", 0o755)
	add(r.binary(t, "safebrowsing-relay"), "/usr/bin/safebrowsing-relay", "", 0o755)
	for _, unit := range units {
		add(filepath.Join(r.source, "deploy/systemd", unit), "/lib/systemd/system/"+unit, "", 0o644)
	}
	for _, name := range configuration {
		add(filepath.Join(r.source, "deploy/package", name), "/etc/coredns-safebrowsing/"+name, "config|noreplace", 0o644)
	}
	pages, _ := manualPages(r.source) // newRelease has checked it
	for _, page := range pages {
		add(page, filepath.Join("/usr/share/man", filepath.Base(filepath.Dir(page)), filepath.Base(page)), "", 0o644)
	}
	add(filepath.Join(r.source, "LICENSE"), "/usr/share/doc/coredns-safebrowsing/copyright", "", 0o644)
	for _, name := range []string{"README.md", "CHANGELOG.md", "Corefile.example"} {
		add(filepath.Join(r.source, name), "/usr/share/doc/coredns-safebrowsing/"+name, "", 0o644)
	}
}

package main

import (
	"io"
	"io/fs"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/ipk" // registers the packager
)

// routerTag is the build tag of the server for routers.
const routerTag = "router"

// opkgArch are the architectures of OpenWrt, by target. Of each family it is one that many
// routers have; the program runs on the others, too, with "opkg install --force-architecture".
var opkgArch = map[string]string{
	"linux/mipsle": "mipsel_24kc", "linux/mips": "mips_24kc", "linux/arm/6": "arm_cortex-a7_neon-vfpv4",
	"linux/arm64": "aarch64_cortex-a53", "linux/amd64": "x86_64",
}

// forRouter makes the package of OpenWrt for a target.
func (r *release) forRouter(t target) error {
	if err := r.goBuild(t, routerTag, r.binary(t, routerTag), "./cmd/coredns"); err != nil {
		return err
	}
	return r.openwrt(t)
}

// openwrt writes the package. It has the same files as that of deploy/openwrt/Makefile.
func (r *release) openwrt(t target) error {
	in := func(name string) string { return filepath.Join(r.source, "deploy/openwrt", name) }
	info := r.packageInfo(t, t.arch)
	info.Depends, info.Recommends = []string{"ca-bundle"}, nil
	info.Description = "CoreDNS with Google Safe Browsing, behind dnsmasq."
	info.Scripts = nfpm.Scripts{PostInstall: in("package/postinst"), PreRemove: in("package/prerm")}
	info.IPK.Arch = opkgArch[t.String()]
	info.IPK.Fields = map[string]string{"Require-User": "safebrowsing=8530:safebrowsing=8530"}
	info.Contents = nil
	add := func(source, path, kind string, mode fs.FileMode) {
		info.Contents = append(info.Contents, &files.Content{Source: source, Destination: path, Type: kind, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: r.time}})
	}
	add(r.binary(t, routerTag), "/usr/bin/coredns-safebrowsing", "", 0o755)
	add(in("files/safebrowsing.init"), "/etc/init.d/safebrowsing", "", 0o755)
	add(in("files/safebrowsing.config"), "/etc/config/safebrowsing", "config|noreplace", 0o600)
	add(in("files/safebrowsing.json"), "/etc/capabilities/safebrowsing.json", "", 0o644)
	packager, err := nfpm.Get("ipk")
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, "ipk"); err != nil {
		return err
	}
	return writeFile(r.name(t, "_openwrt.ipk"), func(w io.Writer) error { return packager.Package(info, w) })
}

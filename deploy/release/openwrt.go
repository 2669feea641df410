package main

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/ipk" // registers the packager
)

// routerTag is the build tag of the server for routers.
const routerTag = "router"

// openwrtArchs are the architectures of OpenWrt that run the program of a target, in the words
// of "opkg print-architecture" and of /etc/apk/arch. Neither opkg nor apk installs a package for
// another one. GOARM is as in OpenWrt's own packages (lang/golang/golang-values.mk of its
// feed), or less: 5 without a floating point unit.
var openwrtArchs = map[string][]string{
	"linux/amd64": {"x86_64"},
	"linux/arm64": {"aarch64_generic", "aarch64_cortex-a53", "aarch64_cortex-a72", "aarch64_cortex-a76"},
	"linux/arm/5": {"arm_arm926ej-s", "arm_cortex-a7", "arm_cortex-a9", "arm_xscale"},
	"linux/arm/6": {"arm_arm1176jzf-s_vfp", "arm_cortex-a5_vfpv4", "arm_cortex-a7_neon-vfpv4", "arm_cortex-a7_vfpv4", "arm_cortex-a8_vfpv3", "arm_cortex-a9_neon", "arm_cortex-a9_vfpv3-d16", "arm_cortex-a15_neon-vfpv4"},
	"linux/mips":  {"mips_24kc"}, "linux/mipsle": {"mipsel_24kc", "mipsel_24kc_24kf", "mipsel_74kc"},
}

// openwrtUser is the user of the service, in the words of Require-User and of .rusers.
const openwrtUser = "safebrowsing=8530:safebrowsing=8530"

// forRouter makes the packages of OpenWrt for a target.
func (r *release) forRouter(t target) error {
	if err := r.goBuild(t, r.binary(t, routerTag), "./cmd/coredns"); err != nil {
		return err
	}
	return r.openwrt(t)
}

// openwrt writes the packages of OpenWrt for a target that was built.
func (r *release) openwrt(t target) error {
	for _, arch := range openwrtArchs[t.String()] {
		if err := r.ipk(t, arch); err != nil {
			return err
		}
		if err := r.apk(t, arch); err != nil {
			return err
		}
	}
	return nil
}

// openwrtName returns the name of a file of the release for an architecture of OpenWrt.
func (r *release) openwrtName(arch, ending string) string {
	return filepath.Join(r.out, fmt.Sprintf("coredns-safebrowsing_%s_openwrt_%s%s", r.version, arch, ending))
}

// ipk writes the package for OpenWrt up to 24.10, which has opkg. It has the same files as the one for
// deploy/openwrt/Makefile.
func (r *release) ipk(t target, arch string) error {
	info := r.openwrtInfo(t)
	info.IPK.Arch = arch
	info.IPK.Fields = map[string]string{"Require-User": openwrtUser}
	return writePackage(info, "ipk", r.openwrtName(arch, ".ipk"))
}

// openwrtInfo describes both packages of OpenWrt.
func (r *release) openwrtInfo(t target) *nfpm.Info {
	in := func(name string) string { return filepath.Join(r.source, "deploy/openwrt", name) }
	info := r.packageInfo(t, t.arch)
	info.Depends, info.Recommends = []string{"ca-bundle"}, nil
	info.Description = "CoreDNS with Google Safe Browsing, behind dnsmasq."
	info.Scripts = nfpm.Scripts{PostInstall: in("package/postinst"), PreRemove: in("package/prerm")}
	info.Contents = files.Contents{{Destination: "/etc/safebrowsing", Type: "dir", FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: r.time}}}
	r.addFile(info, r.binary(t, routerTag), "/usr/bin/coredns-safebrowsing", "", 0o755)
	r.addFile(info, in("files/safebrowsing.init"), "/etc/init.d/safebrowsing", "", 0o755)
	r.addFile(info, in("files/safebrowsing.config"), openwrtConfig, "config|noreplace", 0o600)
	r.addFile(info, in("files/safebrowsing.json"), "/etc/capabilities/safebrowsing.json", "", 0o644)
	r.addFile(info, in("files/safebrowsing.defaults"), "/etc/uci-defaults/safebrowsing", "", 0o755)
	r.addFile(info, in("package/keep"), "/lib/upgrade/keep.d/coredns-safebrowsing", "", 0o644)
	return info
}

// openwrtConfig is the file that an upgrade leaves as the operator wrote it.
const openwrtConfig = "/etc/config/safebrowsing"

func (r *release) addFile(info *nfpm.Info, source, path, kind string, mode fs.FileMode) {
	info.Contents = append(info.Contents, &files.Content{Source: source, Destination: path, Type: kind, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: r.time}})
}

// writePackage writes a package in a format of nfpm.
func writePackage(info *nfpm.Info, format, path string) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	return writeFile(path, func(w io.Writer) error { return packager.Package(info, w) })
}

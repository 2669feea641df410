package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk" // registers the packager
)

// apk writes the package for OpenWrt since 25.12, which has apk-tools 3. It has the format of
// version 2, which these read, too (src/extract_v2.c of apk-tools), with the files from which the
// functions of OpenWrt know a package (include/package-pack.mk and lib/functions.sh of OpenWrt).
func (r *release) apk(t target, arch string) error {
	info := r.openwrtInfo(t)
	info.APK.Arch = arch
	info.Prerelease = strings.ReplaceAll(info.Prerelease, ".", "") // apk-package(5), "1.2.3_rc1"
	if err := r.apkState(info); err != nil {
		return err
	}
	if err := r.apkScripts(info); err != nil {
		return err
	}
	return writePackage(info, "apk", r.openwrtName(arch, ".apk"))
}

// apkState adds the files in /lib/apk/packages: the user, the files, those that sysupgrade keeps,
// and their checksums, by which it sees that they were changed.
func (r *release) apkState(info *nfpm.Info) error {
	var list, sums string
	for _, content := range info.Contents {
		if content.Type != "dir" {
			list += content.Destination + "\n"
		}
		if content.Destination == openwrtConfig {
			text, err := os.ReadFile(content.Source)
			if err != nil {
				return err
			}
			sums = fmt.Sprintf("%s %x\n", openwrtConfig, sha256.Sum256(text))
		}
	}
	for _, file := range []struct{ ending, text string }{
		{"rusers", openwrtUser + "\n"}, {"list", list}, {"conffiles", openwrtConfig + "\n/etc/safebrowsing/\n"}, {"conffiles_static", sums},
	} {
		path, err := r.workFile("apk."+file.ending, file.text)
		if err != nil {
			return err
		}
		r.addFile(info, path, "/lib/apk/packages/"+info.Name+"."+file.ending, "", 0o644)
	}
	return nil
}

// apkScripts sets the scripts. On an upgrade apk runs none of the old package, so that the old
// program would run on: the new one's starts it again.
func (r *release) apkScripts(info *nfpm.Info) error {
	install, err := os.ReadFile(info.Scripts.PostInstall)
	if err != nil {
		return err
	}
	remove, err := os.ReadFile(info.Scripts.PreRemove)
	if err != nil {
		return err
	}
	upgrade := "#!/bin/sh\nexport PKG_UPGRADE=1\n" + string(install) + "[ -n \"$IPKG_INSTROOT\" ] || /etc/init.d/safebrowsing restart\n"
	for _, script := range []struct {
		name, text string
		path       *string
	}{
		{"install", string(install), &info.Scripts.PostInstall},
		{"upgrade", upgrade, &info.APK.Scripts.PostUpgrade},
		{"remove", string(remove), &info.Scripts.PreRemove},
	} {
		if *script.path, err = r.workFile("apk."+script.name, script.text); err != nil {
			return err
		}
	}
	return nil
}

// workFile writes a file with the time of the release, which a script in a package has.
func (r *release) workFile(name, text string) (string, error) {
	path := filepath.Join(r.work, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return "", err
	}
	return path, os.Chtimes(path, r.time, r.time)
}

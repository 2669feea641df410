package main

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// images returns the images of a release by their platforms, read from its archive.
func images(t *testing.T, r *release, suffix string, targets []target) map[string]v1.Image {
	t.Helper()
	must(t, r.image(suffix, targets))
	folder := t.TempDir()
	for name, f := range contents(t, open(t, filepath.Join(r.out, "coredns-safebrowsing_1.2.3"+suffix+"_image.tar"))) {
		write(t, filepath.Join(folder, name), f.text)
	}
	top, err := layout.ImageIndexFromPath(folder)
	must(t, err)
	must(t, validate.Index(top))
	all := make(map[string]v1.Image)
	for _, m := range manifests(t, top) {
		index, err := top.ImageIndex(m.Digest)
		must(t, err)
		for _, m := range manifests(t, index) {
			all[m.Platform.String()], err = index.Image(m.Digest)
			must(t, err)
		}
	}
	return all
}

func manifests(t *testing.T, index v1.ImageIndex) []v1.Descriptor {
	t.Helper()
	m, err := index.IndexManifest()
	must(t, err)
	return m.Manifests
}

// What deploy/kubernetes relies on: a numeric user, no need to write outside the volume, and the programs in the top folder.
func TestTheImageIsForEachPlatform(t *testing.T) {
	r := unbuilt(t, "linux/amd64,linux/arm64,linux/arm/6,linux/mipsle")
	all := images(t, r, "", r.targets)
	equal(t, "platforms", slices.Sorted(maps.Keys(all)), []string{"linux/amd64", "linux/arm/v6", "linux/arm/v7", "linux/arm64"})
	for platform, img := range all {
		file, err := img.ConfigFile()
		must(t, err)
		c := file.Config
		got := []string{file.Platform().String(), c.User, c.Labels["org.opencontainers.image.version"]}
		equal(t, "platform, user and version", got, []string{platform, "65532:65532", "1.2.3"})
		equal(t, "the volume is the default of db", slices.Contains(c.Env, "STATE_DIRECTORY=/var/lib/coredns-safebrowsing"), true)
		files := contents(t, mutate.Extract(img))
		for name, mode := range map[string]int64{
			"coredns": 0o755, "safebrowsing": 0o755, "safebrowsing-relay": 0o755, "etc/coredns/Corefile": 0o644, "etc/coredns/block.txt": 0o644, "etc/passwd": 0o644,
			"etc/ssl/certs/ca-certificates.crt": 0o644, "usr/share/zoneinfo/Europe/Berlin": 0o644, "usr/share/zoneinfo/Europe": 0o755, "tmp": 0o1777, "var/lib/coredns-safebrowsing": 0o700,
		} {
			h := cmp.Or(files[name], files[name+"/"])
			owner := map[bool]int{true: nonroot}[name == "var/lib/coredns-safebrowsing"]
			if h == nil || h.Mode&0o7777 != mode || h.Uid != owner {
				t.Fatalf("%s: expected %s with mode %o of user %d, got %+v", platform, name, mode, owner, h)
			}
		}
		equal(t, platform+": capability", files["coredns"].PAXRecords["SCHILY.xattr.security.capability"], netBindService)
	}
}

// The image of a cluster has its own server, and is made only if it is wanted: it takes minutes.
func TestTheImageOfAClusterHasItsServer(t *testing.T) {
	equal(t, "builds for a cluster", len(unbuilt(t, "linux/amd64").cluster), 0)
	r := unbuilt(t, "linux/amd64+cluster,linux/arm64+cluster")
	equal(t, "builds for a cluster, and others", [2]int{len(r.cluster), len(r.targets)}, [2]int{2, 0})
	for _, target := range r.cluster {
		for _, program := range programs {
			write(t, r.binary(target, program), program+" of a cluster")
		}
	}
	all := images(t, r, "-cluster", r.cluster)
	equal(t, "platforms", slices.Sorted(maps.Keys(all)), []string{"linux/amd64", "linux/arm64"})
	for platform, img := range all {
		equal(t, platform, contents(t, mutate.Extract(img))["coredns"].text, "coredns of a cluster")
	}
}

func TestTheImageTrustsTheAuthoritiesOfMozilla(t *testing.T) {
	names := make(map[string]bool)
	for block, rest := pem.Decode(authorities()); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		must(t, err)
		names[c.Subject.CommonName] = true
	}
	equal(t, "two of googleapis.com", [2]bool{names["GTS Root R1"], names["GTS Root R4"]}, [2]bool{true, true})
	equal(t, "at least 100", len(names) >= 100, true)
}

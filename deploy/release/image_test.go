package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
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
	if err := validate.Index(top); err != nil {
		t.Errorf("The layout is not valid: %v", err)
	}
	all := make(map[string]v1.Image)
	for _, m := range manifests(t, top) {
		index, err := top.ImageIndex(m.Digest)
		must(t, err)
		for _, m := range manifests(t, index) {
			if all[m.Platform.String()], err = index.Image(m.Digest); err != nil {
				t.Fatal(err)
			}
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
	for _, platform := range []string{"linux/amd64", "linux/arm64", "linux/arm/v6", "linux/arm/v7"} {
		img := all[platform]
		if img == nil || len(all) != 4 {
			t.Fatalf("Expected 4 platforms, with %s, got %v", platform, all)
		}
		file, err := img.ConfigFile()
		must(t, err)
		if c := file.Config; file.Platform().String() != platform || c.User != "65532:65532" || c.Labels["org.opencontainers.image.version"] != "1.2.3" {
			t.Errorf("%s: got %s with the configuration %+v", platform, file.Platform(), c)
		}
		if !slices.Contains(file.Config.Env, "STATE_DIRECTORY=/var/lib/coredns-safebrowsing") {
			t.Errorf("%s: expected the volume to be the default of db, got %v", platform, file.Config.Env)
		}
		files := contents(t, mutate.Extract(img))
		for name, mode := range map[string]int64{
			"coredns": 0o755, "safebrowsing": 0o755, "safebrowsing-relay": 0o755, "etc/coredns/Corefile": 0o644, "etc/coredns/block.txt": 0o644, "etc/passwd": 0o644,
			"etc/ssl/certs/ca-certificates.crt": 0o644, "usr/share/zoneinfo/Europe/Berlin": 0o644, "usr/share/zoneinfo/Europe": 0o755, "tmp": 0o1777, "var/lib/coredns-safebrowsing": 0o700,
		} {
			h := files[name]
			if h == nil {
				h = files[name+"/"]
			}
			owner := map[bool]int{true: nonroot}[name == "var/lib/coredns-safebrowsing"]
			if h == nil || h.Mode&0o7777 != mode || h.Uid != owner {
				t.Errorf("%s: expected %s with mode %o of user %d, got %+v", platform, name, mode, owner, h)
			}
		}
		if h := files["coredns"]; h != nil && h.PAXRecords["SCHILY.xattr.security.capability"] != netBindService {
			t.Errorf("%s: coredns has the capability %q", platform, h.PAXRecords)
		}
	}
}

// The image of a cluster has its own server, and is made only if it is wanted: it takes minutes.
func TestTheImageOfAClusterHasItsServer(t *testing.T) {
	if r := unbuilt(t, "linux/amd64"); len(r.cluster) != 0 {
		t.Errorf("Expected no build of a cluster for linux/amd64, got %v", r.cluster)
	}
	r := unbuilt(t, "linux/amd64+cluster,linux/arm64+cluster")
	if len(r.cluster) != 2 || len(r.targets) != 0 {
		t.Fatalf("Expected two builds of a cluster only, got %v and %v", r.cluster, r.targets)
	}
	for _, target := range r.cluster {
		for _, program := range programs {
			write(t, r.binary(target, program), program+" of a cluster")
		}
	}
	all := images(t, r, "-cluster", r.cluster)
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		if all[platform] == nil || len(all) != 2 {
			t.Fatalf("Expected two platforms, with %s, got %v", platform, all)
		}
		if h := contents(t, mutate.Extract(all[platform]))["coredns"]; h == nil || h.text != "coredns of a cluster" {
			t.Errorf("%s: got the server %+v", platform, h)
		}
	}
}

func TestTheImageTrustsTheAuthoritiesOfMozilla(t *testing.T) {
	all := authorities()
	if !x509.NewCertPool().AppendCertsFromPEM(all) || bytes.Count(all, []byte("BEGIN CERTIFICATE")) < 100 {
		t.Errorf("Expected more than 100 authorities, got %d", bytes.Count(all, []byte("BEGIN CERTIFICATE")))
	}
	for _, root := range []string{"GTS Root R1", "GTS Root R4"} { // of googleapis.com
		found := false
		for block, rest := pem.Decode(all); block != nil; block, rest = pem.Decode(rest) {
			c, err := x509.ParseCertificate(block.Bytes)
			found = found || err == nil && c.Subject.CommonName == root
		}
		if !found {
			t.Errorf("Expected %s", root)
		}
	}
}

package main

import (
	"archive/zip"
	"bytes"
	"encoding/pem"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nonroot is the user of the image, as in the images of the distroless project.
const nonroot = 65532

// baseLayer returns what the programs need of a system: users, authorities of TLS, time zones,
// the configuration, and a folder for the lists. The authorities are Mozilla's, of the module
// golang.org/x/crypto/x509roots/fallback; the time zones are Go's. So the image needs no base.
func (r *release) baseLayer() (v1.Layer, error) {
	zones, err := zoneinfo()
	if err != nil {
		return nil, err
	}
	entries := []entry{
		{path: "etc/", mode: 0o755},
		{path: "usr/", mode: 0o755},
		{path: "usr/share/", mode: 0o755},
		{path: "etc/coredns/", mode: 0o755}, // entries of allow and block go to the volume, which outlives an upgrade
	}
	for _, source := range []string{"deploy/image/Corefile", "deploy/package/allow.txt", "deploy/package/block.txt"} {
		content, err := os.ReadFile(filepath.Join(r.source, source))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{path: "etc/coredns/" + filepath.Base(source), mode: 0o644, content: content})
	}
	return r.layer(append(append(entries, zones...), []entry{
		{path: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{path: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{path: "etc/ssl/", mode: 0o755},
		{path: "etc/ssl/certs/", mode: 0o755},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities()},
		{path: "tmp/", mode: 0o1777},
		{path: "var/", mode: 0o755},
		{path: "var/lib/", mode: 0o755},
		{path: stateDirectory[1:] + "/", mode: 0o700, owner: nonroot},
	}...))
}

// authorities returns the roots in PEM form. It leaves out roots with constraints, which a file
// cannot express.
func authorities() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer has room
		}
	}
	return all.Bytes()
}

// zoneinfo returns Go's time zones where package time looks for the one in $TZ. An archive, as $ZONEINFO may name one, is read
// by time.LoadLocation only.
func zoneinfo() (all []entry, err error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	zones, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib/time/zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	defer zones.Close()
	err = fs.WalkDir(zones, ".", func(name string, d fs.DirEntry, err error) error {
		at := path.Join("usr/share/zoneinfo", name)
		switch {
		case err != nil:
			return err
		case d.IsDir():
			all = append(all, entry{path: at + "/", mode: 0o755})
			return nil
		}
		content, err := fs.ReadFile(zones, name)
		all = append(all, entry{path: at, mode: 0o644, content: content})
		return err
	})
	return all, err
}

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// platforms are what the image is built for, by target. The program for version 6 of ARM serves both.
var platforms = map[string][]v1.Platform{
	"linux/amd64": {{OS: "linux", Architecture: "amd64"}},
	"linux/arm64": {{OS: "linux", Architecture: "arm64"}},
	"linux/arm/6": {{OS: "linux", Architecture: "arm", Variant: "v6"}, {OS: "linux", Architecture: "arm", Variant: "v7"}},
}

// clusterTag is the build tag of the server that takes the place of a cluster's CoreDNS.
const clusterTag = "cluster"

// imageConfig is what deploy/image/Dockerfile says, too. The user is a number, since with
// runAsNonRoot Kubernetes refuses a name (https://github.com/coredns/coredns/pull/7542).
// STATE_DIRECTORY is the default of db.
var imageConfig = v1.Config{
	User:         "65532:65532",
	WorkingDir:   "/",
	Entrypoint:   []string{"/coredns"},
	Cmd:          []string{"-conf", "/etc/coredns/Corefile"},
	Env:          []string{"PATH=/", "STATE_DIRECTORY=" + stateDirectory},
	ExposedPorts: map[string]struct{}{"53/udp": {}, "53/tcp": {}},
	Volumes:      map[string]struct{}{stateDirectory: {}},
}

const stateDirectory = "/var/lib/coredns-safebrowsing"

// netBindService is the file capability cap_net_bind_service=ep: revision 2 with the effective
// bit, then the permitted set, then the inheritable one (linux/capability.h, vfs_cap_data).
const netBindService = "\x01\x00\x00\x02" + "\x00\x04\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

// image writes the image for all platforms of targets that were built, as an OCI layout in an archive,
// which docker, podman, skopeo and crane read. Its tag is the version with suffix. It writes none if there is no platform.
func (r *release) image(suffix string, targets []target) error {
	base, err := r.baseLayer()
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	found := false
	for _, t := range targets {
		for _, platform := range platforms[t.String()] {
			found = true
			img, err := r.imageFor(t, platform, base)
			if err != nil {
				return err
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &platform}})
		}
	}
	if !found {
		return nil
	}
	folder, tag := filepath.Join(r.work, "image"+suffix), r.version+suffix
	top := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
		Annotations: map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": "localhost/coredns-safebrowsing:" + tag}}})
	if _, err := layout.Write(folder, top); err != nil {
		return err
	}
	return writeFile(filepath.Join(r.out, "coredns-safebrowsing_"+tag+"_image.tar"), func(w io.Writer) error { return r.tarFolder(w, folder) })
}

// imageFor returns the image of a platform.
func (r *release) imageFor(t target, platform v1.Platform, base v1.Layer) (v1.Image, error) {
	var entries []entry
	for _, program := range programs {
		content, err := os.ReadFile(r.binary(t, program))
		if err != nil {
			return nil, err
		}
		e := entry{path: program, mode: 0o755, content: content}
		if program == "coredns" {
			e.capability = netBindService
		}
		entries = append(entries, e)
	}
	layer, err := r.layer(entries)
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), base, layer)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant = platform.OS, platform.Architecture, platform.Variant
	file.Created, file.Config = v1.Time{Time: r.time}, *imageConfig.DeepCopy()
	file.Config.Labels = map[string]string{
		"org.opencontainers.image.source":   "https://github.com/coredns-safebrowsing/safebrowsing",
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	return mutate.ConfigFile(img, file)
}

// entry is a file or, with a path that ends in a slash, a folder of a layer or an archive.
type entry struct {
	path       string
	mode       int64
	owner      int
	content    []byte
	capability string
}

// layer returns a layer with entries in the order given.
func (r *release) layer(entries []entry) (v1.Layer, error) {
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	for _, e := range entries {
		if err := r.addEntry(w, e); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

func (r *release) addEntry(w *tar.Writer, e entry) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: e.path, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.content)), ModTime: r.time, Format: tar.FormatPAX}
	if strings.HasSuffix(e.path, "/") {
		header.Typeflag = tar.TypeDir
	}
	if e.capability != "" {
		header.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": e.capability}
	}
	if err := w.WriteHeader(header); err != nil {
		return fmt.Errorf("%s: %w", e.path, err)
	}
	_, err := w.Write(e.content)
	return err
}

// tarFolder writes all files of a folder, in the order of their paths.
func (r *release) tarFolder(w io.Writer, folder string) error {
	var files []file
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		files = append(files, file{name, path, 0o644})
		return err
	})
	if err != nil {
		return err
	}
	return r.tar(w, "", files)
}

// Command release makes all that a release is made of, in the folder dist: the programs for each
// target with the manual pages in an archive, packages for Debian, RPM and OpenWrt, an image, a list of
// what the programs were built from (SPDX), and the checksums. It needs no network, except for
// modules that are not yet on the machine, and no daemon. Two releases of one version from one
// commit are equal, byte for byte.
//
//	make man && go -C deploy/release run . v1.2.3
//
//	build ──▶ archive, deb, rpm, ipk, image, SPDX ──▶ SHA256SUMS ──▶ SHA256SUMS.minisig
//
// SOURCE_DATE_EPOCH is the time in all files, by default the time of the last commit. With
// MINISIGN_KEY_FILE, the file of a minisign key, the checksums are signed;
// MINISIGN_PASSWORD decrypts the key.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
)

// release is what is made.
type release struct {
	version string    // of the tag, without the v
	source  string    // the top directory of the repository
	out     string    // where the files of the release are written
	work    string    // where the programs are built
	time    time.Time // of all files
	targets []target
	routers []target // targets of OpenWrt's package
	cluster []target // targets of the image with the plugins of a cluster
}

func main() {
	out := flag.String("out", "../../dist", "the `FOLDER` for the files of the release, which is replaced")
	onlyNotes := flag.Bool("notes", false, "print what CHANGELOG.md says about the version, and make nothing")
	onlyCheck := flag.Bool("publish-check", false, "say line by line what is missing before the version can be published, and make nothing")
	only := flag.String("targets", "", "build only these, such as linux/amd64,linux/mips+router (default: those in deploy/release/sizes)")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: make man && go -C deploy/release run . [-out FOLDER] [-targets TARGETS] VERSION\n       go -C deploy/release run . -notes VERSION\n       go -C deploy/release run . -publish-check VERSION")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	var err error
	switch {
	case *onlyCheck:
		if !publishCheck(os.Stdout, "../..", flag.Arg(0), around("../..")) {
			os.Exit(1)
		}
	case *onlyNotes:
		var text string
		text, err = notes("../..", flag.Arg(0))
		fmt.Print(text)
	default:
		err = run(flag.Arg(0), "../..", *out, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run makes a release from the repository in source. only are the targets to build, separated
// by commas; "" are all.
func run(tag, source, out, only string) error {
	r, err := newRelease(tag, source, out, only)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	for _, t := range r.targets {
		fmt.Println(t)
		if err := r.forTarget(t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	for _, t := range r.routers {
		fmt.Println(t, "OpenWrt")
		if err := r.forRouter(t); err != nil {
			return fmt.Errorf("%s: OpenWrt: %w", t, err)
		}
	}
	for _, t := range r.cluster {
		fmt.Println(t, "cluster")
		if err := r.build(t); err != nil {
			return fmt.Errorf("%s: cluster: %w", t, err)
		}
	}
	for name, targets := range map[string][]target{"": r.targets, "-" + clusterTag: r.cluster} {
		if err := r.image(name, targets); err != nil {
			return fmt.Errorf("image: %w", err)
		}
	}
	return r.checksums()
}

func newRelease(tag, source, out, only string) (*release, error) {
	v, err := semver.StrictNewVersion(strings.TrimPrefix(tag, "v"))
	if err != nil {
		return nil, fmt.Errorf("%s is not a version such as v1.2.3 or v1.2.3-rc.1: %w", tag, err)
	}
	if v.Metadata() != "" {
		return nil, fmt.Errorf("%s has build metadata, which packages cannot have", tag)
	}
	if pages, err := manualPages(source); err != nil || len(pages) == 0 {
		return nil, errors.New("there are no manual pages in deploy/man: run make man first")
	}
	r := &release{version: v.String(), source: source, out: out}
	sizes := filepath.Join(source, "deploy/release/sizes")
	if r.targets, err = readTargets(sizes, only, ""); err != nil {
		return nil, err
	}
	if r.routers, err = readTargets(sizes, only, routerTag); err != nil {
		return nil, err
	}
	if only == "" || strings.Contains(only, "+"+clusterTag) { // it takes minutes
		if r.cluster, err = readTargets(sizes, only, clusterTag); err != nil {
			return nil, err
		}
	}
	if r.time, err = releaseTime(source); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	r.work, err = os.MkdirTemp("", "release")
	return r, err
}

// releaseTime returns the time of all files of a release, see
// https://reproducible-builds.org/specs/source-date-epoch/.
func releaseTime(source string) (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		out, err := exec.Command("git", "-C", source, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("the time of the last commit, for all files: %w: set SOURCE_DATE_EPOCH to seconds since 1970", err)
		}
		epoch = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds since 1970", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// forTarget makes the files of one target.
func (r *release) forTarget(t target) error {
	for _, step := range []func(target) error{r.build, r.bill, r.archive, r.packages} {
		if err := step(t); err != nil {
			return err
		}
	}
	return nil
}

// name returns the name of a file of the release for a target.
func (r *release) name(t target, ending string) string {
	return filepath.Join(r.out, fmt.Sprintf("coredns-safebrowsing_%s_%s%s", r.version, strings.ReplaceAll(t.String(), "/", "_"), ending))
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// said is what a command line has printed, and its exit status.
type said struct {
	t           *testing.T
	args        []string
	status      int
	out, errOut string
}

func run(t *testing.T, args ...string) said {
	t.Helper()
	return fed(t, "", args...)
}

// fed runs a command line with this standard input.
func fed(t *testing.T, in string, args ...string) said {
	t.Helper()
	return runIn(t.Context(), t, strings.NewReader(in), args...)
}

// runIn runs a command line until ctx ends.
func runIn(ctx context.Context, t *testing.T, in io.Reader, args ...string) said {
	t.Helper()
	var w, e bytes.Buffer
	status := execute(ctx, append([]string{"safebrowsing"}, args...), in, &w, &e)
	return said{t, args, status, w.String(), e.String()}
}

// want wants an exit status, and parts of what was printed.
func (s said) want(status int, parts ...string) said {
	s.t.Helper()
	testkit.Equal(s.t, fmt.Sprintf("status of %.200q: %s%s", s.args, s.out, s.errOut), s.status, status)
	testkit.WantParts(s.t, s.out+s.errOut, parts...)
	return s
}

// quiet wants no complaint.
func (s said) quiet() said {
	s.t.Helper()
	testkit.Equal(s.t, fmt.Sprintf("complaints of %.200q", s.args), s.errOut, "")
	return s
}

// mute wants nothing but complaints.
func (s said) mute() {
	s.t.Helper()
	testkit.Equal(s.t, fmt.Sprintf("what %.200q prints", s.args), s.out, "")
}

// not wants none of these parts in what was printed.
func (s said) not(parts ...string) said {
	s.t.Helper()
	testkit.WantNone(s.t, s.out+s.errOut, parts...)
	return s
}

type world struct {
	*protocoltest.Server
	endpoint string
	dir      string
}

// newWorld starts a server of lists, without a key in the environment.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Setenv(config.KeyVariable, "")
	t.Setenv("STATE_DIRECTORY", filepath.Join(t.TempDir(), "none"))
	server, endpoint := protocoltest.Small(t)
	return &world{Server: server, endpoint: endpoint, dir: filepath.Join(t.TempDir(), "db")}
}

func filled(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.update(t).want(0)
	w.ClientStarted()
	return w
}

func (w *world) update(t *testing.T, more ...string) said {
	t.Helper()
	return run(t, append([]string{"update"}, w.flags(more...)...)...)
}

// flags are those of a command that asks the server for lists of the folder, at once.
func (w *world) flags(more ...string) []string {
	return append([]string{"-db", w.dir, "-endpoint", w.endpoint, "-now"}, more...)
}

// corefile replaces the words for the endpoint and the folder in a Corefile, writes it and returns its path.
func (w *world) corefile(t *testing.T, content string) string {
	t.Helper()
	dir := t.TempDir()
	content = ownNames.ReplaceAllStringFunc(content, func(own string) string { return ownFile(t, ownNames.FindStringSubmatch(own)[1]) })
	return testkit.Write(t, dir, "Corefile", strings.NewReplacer("ENDPOINT", w.endpoint, "DB", w.dir, "HERE", dir).Replace(content))
}

// blocksOf reads a Corefile. Its server blocks are closed when the test ends.
func blocksOf(t *testing.T, path string) []serverBlock {
	t.Helper()
	all, err := readCorefile(path)
	testkit.Must(t, err)
	t.Cleanup(func() { closeBlocks(all) })
	return all
}

// ownNames stands in a Corefile of a test for an own list with these names, and with all below them.
var ownNames = regexp.MustCompile(`OWN\(([^)]*)\)`)

// ownFile writes an own list of names and all names below them.
func ownFile(t *testing.T, names string) string {
	t.Helper()
	lines := ""
	for _, name := range strings.Fields(names) {
		lines += name + "\n*." + name + "\n"
	}
	return testkit.Write(t, t.TempDir(), "own.txt", lines)
}

var stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]{3,4}`)

// plain replaces by words all parts of a text that differ from run to run.
func (w *world) plain(text string, dirs ...string) string {
	text = strings.NewReplacer(w.endpoint, "ENDPOINT", w.dir, "DB").Replace(text)
	for _, dir := range dirs {
		text = strings.ReplaceAll(text, dir, "DIR")
	}
	return stamps.ReplaceAllString(text, "TIME")
}

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	testkit.Equal(t, what, got, want)
}

// decode reads lines of JSON into objects that have exactly these fields.
func decode[T any](t *testing.T, out string) (all []T) {
	t.Helper()
	for line := range strings.Lines(out) {
		var v T
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		testkit.Must(t, d.Decode(&v))
		all = append(all, v)
	}
	return all
}

func read(t *testing.T, file string) string { t.Helper(); return testkit.Read(t, file) }

func write(t *testing.T, file, text string) {
	t.Helper()
	testkit.Write(t, filepath.Dir(file), filepath.Base(file), text)
}

// wantRequests wants that number of requests to a method of the server; "": to all.
func (w *world) wantRequests(t *testing.T, method string, want int) {
	t.Helper()
	expect(t, "requests "+method, len(w.Requests(method)), want)
}

const usual = ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n }\n}\n"

func (w *world) lists(t *testing.T) []updater.ListStatus {
	t.Helper()
	all, err := updater.Status(w.dir)
	testkit.Must(t, err)
	return all
}

// wantVerified expects that number of lists in the folder, and none damaged.
func (w *world) wantVerified(t *testing.T, n int) {
	t.Helper()
	all := w.lists(t)
	expect(t, fmt.Sprintf("lists in %+v", all), len(all), n)
	expect(t, "some are missing", slices.ContainsFunc(all, func(l updater.ListStatus) bool { return l.Missing() }), false)
}

package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestCheckReadsNamesFromStandardInput(t *testing.T) {
	w := filled(t)
	in := "\uFEFF# mine\n\n  safe.example  0.0.0.0 # seen yesterday\r\n#evil.example\nmal.example\nhttps://b.example/x"
	status, out, errOut := feed(t, in, "check", "-json", "-db", w.dir, "a.example", "-", "c.example")
	if status != 1 || errOut != "" {
		t.Errorf("status %d, %s", status, errOut)
	}
	var got []string
	for _, c := range decode[checked](t, out) {
		got = append(got, string(c.Input)+" "+c.Verdict)
	}
	expect(t, "names", strings.Join(got, "\n"), "a.example safe\nsafe.example safe\nmal.example unsure\nhttps://b.example/x safe\nc.example safe")

	if status, out, errOut := feed(t, "a.example\nb.example\n", "check", "-db", w.dir, "-"); status != 0 || strings.Count(out, ": safe") != 2 {
		t.Errorf("names that are safe: status %d, %s%s", status, out, errOut)
	}
	if status, out, errOut := feed(t, "# nothing\n", "check", "-db", w.dir, "-"); status != 0 || out+errOut != "" {
		t.Errorf("no names: status %d, %s%s", status, out, errOut)
	}
	if status, _, errOut := feed(t, "a.example\n"+strings.Repeat("x", 1<<17), "check", "-db", w.dir, "-"); status != 2 || !strings.Contains(errOut, "reading names from standard input: ") {
		t.Errorf("a line without an end: status %d, %s", status, errOut)
	}
}

func TestWarningsAboutListsComeOnceForAllNames(t *testing.T) {
	w := newWorld(t)
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n }\n}\n")
	status, out, errOut := feed(t, strings.Repeat("a.example\n", 50), "check", "-corefile", corefile, "-")
	if status != 1 || strings.Count(out, "a.example: safe") != 50 || strings.Count(errOut, "\n") != 1 {
		t.Errorf("status %d, %d names, %s", status, strings.Count(out, "a.example: safe"), errOut)
	}
}

// A verdict comes before the next name is written, and a user can stop the command.
func TestNamesAreCheckedAsTheyCome(t *testing.T) {
	w := filled(t)
	in, names := io.Pipe()
	defer names.Close()
	out, errOut := new(testkit.Output), new(testkit.Output)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"safebrowsing", "check", "-db", w.dir, "-"}, in, out, errOut) }()
	if _, err := names.Write([]byte("safe.example\n")); err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		if strings.Contains(out.String(), "safe.example: safe") {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if !strings.Contains(out.String(), "safe.example: safe") {
		t.Errorf("there is no verdict before the last name: %s%s", out, errOut)
	}
	cancel()
	if status := <-ended; status != 2 || !strings.Contains(errOut.String(), context.Canceled.Error()) {
		t.Errorf("stopped: status %d, %s", status, errOut)
	}
}

func TestAReadThatFailsIsNoEnd(t *testing.T) {
	broken := errors.New("the pipe is broken")
	in, names := io.Pipe()
	names.CloseWithError(broken)
	if err := eachName(t.Context(), []string{"-"}, in, func(string) {}); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

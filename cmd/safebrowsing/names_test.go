package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestNamesAreReadFromStandardInput(t *testing.T) {
	in := "\uFEFF# mine\n\n  safe.example  0.0.0.0 # seen yesterday\r\n#evil.example\nmal.example\nhttps://b.example/x"
	status, out, errOut := feed(t, in, "expressions", "-json", "a.example", "-", "c.example")
	if status != 0 || errOut != "" {
		t.Errorf("status %d, %s", status, errOut)
	}
	var got []string
	for _, c := range decode[expressed](t, out) {
		got = append(got, string(c.Input))
	}
	expect(t, "names", strings.Join(got, " "), "a.example safe.example mal.example https://b.example/x c.example")
	if status, _, errOut := feed(t, "a.example\n"+strings.Repeat("x", 1<<17), "expressions", "-"); status != 2 || !strings.Contains(errOut, "reading names from standard input: ") {
		t.Errorf("a line without an end: status %d, %s", status, errOut)
	}
}

// An answer comes before the next name is written, and a user can stop the command.
func TestNamesAreReadAsTheyCome(t *testing.T) {
	in, names := io.Pipe()
	defer names.Close()
	out, errOut := new(testkit.Output), new(testkit.Output)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() { ended <- execute(ctx, []string{"safebrowsing", "expressions", "-"}, in, out, errOut) }()
	if _, err := names.Write([]byte("safe.example\n")); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "an answer before the last name", func() bool { return strings.Contains(out.String(), "safe.example/") })
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

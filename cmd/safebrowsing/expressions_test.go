package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestExpressionsAsText(t *testing.T) {
	out := run(t, "expressions", "Example.com.", "http://:1/", "http://a.example.com/b?q=\x1b").want(1).quiet().out
	var want strings.Builder
	want.WriteString("Example.com.\n    " + sumOf("example.com/") + "  example.com/\n\nhttp://:1/\n    error: no host\n\nhttp://a.example.com/b?q=%1B\n")
	for _, x := range []string{"a.example.com/b?q=%1B", "a.example.com/b", "a.example.com/", "example.com/b?q=%1B", "example.com/b", "example.com/"} {
		want.WriteString("    " + sumOf(x) + "  " + x)
		if !strings.HasSuffix(x, ".com/") {
			want.WriteString("  (DNS cannot see it)")
		}
		want.WriteString("\n")
	}
	expect(t, "text", out, want.String())
}

func TestExpressionsAsJSON(t *testing.T) {
	expect(t, "one name", run(t, "expressions", "-json", "example.com").out, `{"input":"example.com","host":"example.com","expressions":[{"expression":"example.com/",`+
		`"sha256":"73d986e009065f182c10bcb6a45db3d6eda9498f8930654af2653f8a938cd801","dns":true}]}`+"\n")
	expect(t, "no host", run(t, "expressions", "-json", "http:///x").out, `{"input":"http:///x","error":"no host"}`+"\n")
	out := run(t, "expressions", "-json", "-rule", "webrisk", "a.b.example.co.uk", "", "https://1.2.3.4/x/", "help").want(1).out
	got := decode[expressed](t, strings.Replace(out, `{"input":"","error":"no host"}`+"\n", "", 1))
	want := []expressed{
		{"a.b.example.co.uk", "a.b.example.co.uk", []expression{{"a.b.example.co.uk/", "", true}, {"co.uk/", "", true}, {"example.co.uk/", "", true}, {"b.example.co.uk/", "", true}}},
		{"https://1.2.3.4/x/", "1.2.3.4", []expression{{"1.2.3.4/x/", "", false}, {"1.2.3.4/", "", true}}},
		{"help", "help", []expression{{"help/", "", true}}},
	}
	for i := range want {
		for j, x := range want[i].Expressions {
			want[i].Expressions[j].SHA256 = sumOf(string(x.Expression))
		}
	}
	expect(t, "three names", got, want)
}

func sumOf(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }

func TestArgumentsMayHoldAnyBytes(t *testing.T) {
	for arg, want := range map[string]string{
		"\xff.example":          "%FF.example",
		"http://a.example/\x80": "http://a.example/%80",
		"ok-\uFFFD.example":     "ok-\uFFFD.example", // the letter itself is valid
		"<&>\u2028\x00\"":       "<&>\u2028\x00\"",
		"b\xc3\xbccher.example": "bücher.example",
		"\xe2\x82":              "%E2%82",
		"%ff.example":           "%ff.example",
		"a\xffb\xfe.example?\t": "a%FFb%FE.example?\t",
		" example.com ":         " example.com ",
	} {
		var got []struct{ Input string }
		testkit.Must(t, json.Unmarshal([]byte("["+run(t, "expressions", "-json", "--", arg).out+"]"), &got)) // one object
		expect(t, fmt.Sprintf("%q", arg), got[0].Input, want)
	}
	run(t, "expressions", "-json", "\xff.example").want(0, `"host":"%FF.example"`)
	run(t, "expressions", "\x1b[2J\xff.example").not("\x1b", "\xff") // as a terminal likes it
}

func TestNamesAreReadFromStandardInput(t *testing.T) {
	in := "\uFEFF# mine\n\n  safe.example  0.0.0.0 # seen yesterday\r\n#evil.example\nmal.example\nhttps://b.example/x"
	out := fed(t, in, "expressions", "-json", "a.example", "-", "c.example").want(0).quiet().out
	var got []string
	for _, c := range decode[expressed](t, out) {
		got = append(got, string(c.Input))
	}
	expect(t, "names", strings.Join(got, " "), "a.example safe.example mal.example https://b.example/x c.example")
	fed(t, "a.example\n"+strings.Repeat("x", 1<<17), "expressions", "-").want(2, "reading names from standard input: ")
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
	_, err := names.Write([]byte("safe.example\n"))
	testkit.Must(t, err)
	testkit.Until(t, "an answer before the last name", func() bool { return strings.Contains(out.String(), "safe.example/") })
	cancel()
	expect(t, "status", <-ended, 2)
	testkit.WantParts(t, errOut.String(), context.Canceled.Error())
}

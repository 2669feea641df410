package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// viewed is a Corefile whose blocks are selected by views.
const viewed = `. {
	view kids {
		expr incidr(client_ip(), '10.1.0.0/16')
		expr type() in ['A', 'AAAA']
	}
	safebrowsing {
		block OWN(toys.example all.example)
	}
}
. {
	view staff {
		expr incidr(client_ip(), '10.2.0.0/16')
	}
	safebrowsing {
		block OWN(work.example all.example)
	}
}
. {
	safebrowsing {
		block OWN(all.example)
	}
}
only.example {
	view kids {
		expr incidr(client_ip(), '10.1.0.0/16')
	}
	safebrowsing {
		block OWN(a.only.example)
	}
}
bare.example {
	view staff {
		expr true
	}
	whoami
}
`

func TestTheViewDecidesWhichBlockAnswers(t *testing.T) {
	w := newWorld(t)
	corefile := w.corefile(t, viewed)
	for _, test := range []struct {
		view, name, verdict string
		block               int
		others              string
	}{
		{"", "toys.example", "safe", 3, "kids staff"},
		{"", "all.example", "unsafe", 3, "kids staff"},
		{"kids", "toys.example", "unsafe", 1, "staff"},
		{"kids", "work.example", "safe", 1, "staff"},
		{"staff", "work.example", "unsafe", 2, "kids"},
		{"staff", "toys.example", "safe", 2, "kids"},
		{"", "a.only.example", "safe", 3, "kids staff"}, // CoreDNS goes on to the zone above
		{"kids", "a.only.example", "unsafe", 4, "staff"},
		{"", "x.bare.example", "safe", 3, "kids staff"},
		{"staff", "x.bare.example", "safe", 0, ""}, // a block without the plugin
	} {
		args := []string{"check", "-json", "-corefile", corefile}
		if test.view != "" {
			args = append(args, "-view", test.view)
		}
		_, out, errOut := invoke(t, append(args, test.name)...)
		got := decode[checked](t, out)[0]
		var others []string
		for _, name := range got.OtherViews {
			others = append(others, string(name))
		}
		if got.Verdict != test.verdict || got.Block != test.block || strings.Join(others, " ") != test.others || errOut != "" {
			t.Errorf("%s for view %q: %+v %s, want %+v", test.name, test.view, got, errOut, test)
		}
	}
}

func TestCheckTellsOfViews(t *testing.T) {
	w := newWorld(t)
	corefile := w.corefile(t, viewed)
	dir := filepath.Dir(corefile)
	_, out, _ := invoke(t, "check", "-corefile", corefile, "all.example")
	out = regexp.MustCompile(`/\S+/own\.txt`).ReplaceAllString(out, "OWN")
	expect(t, "text", w.plain(out, dir), `all.example: unsafe
    expression  all.example/
    list        OWN
    line        OWN:1: all.example
    decided by  block
    zones       .
    block       3, DIR/Corefile:19
    note        clients in views kids, staff get the answer of another server block: choose with -view
`)
	_, out, _ = invoke(t, "check", "-corefile", corefile, "-view", "kids", "a.example")
	expect(t, "text", w.plain(out, dir), `a.example: safe
    zones       .
    block       1, DIR/Corefile:6
    view        kids, if incidr(client_ip(), '10.1.0.0/16') and type() in ['A', 'AAAA']
    note        clients in view staff get the answer of another server block: choose with -view
    note        only your own lists are in force
`)
	_, out, _ = invoke(t, "check", "-json", "-corefile", corefile, "-view", "kids", "a.example")
	expect(t, "JSON", w.plain(out, dir), `{"input":"a.example","verdict":"safe","threat":"","warning":"","list":"","expression":"","decided_by":"nobody","error":"","line":"","path":"","note":"only your own lists are in force",`+
		`"block":1,"stanza":"DIR/Corefile:6","zones":".","view":"kids","other_views":["staff"]}`+"\n")

	// Without a block for clients in no view, the block of the first view decides, with a note.
	first, _, _ := strings.Cut(viewed, "only.example")
	only := w.corefile(t, strings.Replace(first, "\n. {\n\tsafebrowsing {\n\t\tblock OWN(all.example)\n\t}\n}\n", "\n", 1))
	_, out, _ = invoke(t, "check", "-corefile", only, "toys.example")
	if !strings.HasPrefix(out, "toys.example: unsafe") || !strings.Contains(out, "view        kids, if ") || !strings.Contains(out, "clients in view staff get ") {
		t.Errorf("views only: %s", out)
	}
}

func TestAViewThatIsNotThere(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct{ corefile, want string }{
		{viewed, "-view guests: the Corefile has no such view, only kids, staff"},
		{". {\n safebrowsing {\n  block OWN(a.example)\n }\n}\n", "-view guests: the Corefile has no views"},
	} {
		status, out, errOut := invoke(t, "check", "-corefile", w.corefile(t, test.corefile), "-view", "guests", "a.example")
		if status != 2 || out != "" || !strings.Contains(errOut, test.want) {
			t.Errorf("status %d, %s%s, want %s", status, out, errOut, test.want)
		}
	}
	if status, _, errOut := invoke(t, "check", "-db", w.dir, "-view", "kids", "a.example"); status != 2 || !strings.Contains(errOut, "-view is for a Corefile") {
		t.Errorf("with a folder: status %d, %s", status, errOut)
	}
}

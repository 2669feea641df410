package test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// listing is the plugin's page for https://coredns.io/explugins.
const listing = "deploy/coredns.io/safebrowsing.md"

// The page is read at another place: its links are whole URLs. What it says of properties and
// metrics is what docs/corefile.md says.
func TestThePageForCoreDNSAgreesWithTheReference(t *testing.T) {
	head, text, _ := strings.Cut(documents(t)[listing], "\n+++\n")
	repo := regexp.MustCompile(`(?m)^repo = "(https://.+)"$`).FindStringSubmatch(head)
	if repo == nil {
		t.Fatal("Expected the page to begin with fields between two lines of +++")
	}
	syntax := strings.Split(section(t, "Syntax"), "\n")
	for line := range strings.SplitSeq(blocks(text, "txt")[0], "\n") {
		if !slices.Contains(syntax, line) {
			t.Errorf("Expected the line %q in the syntax of docs/corefile.md", line)
		}
	}
	for _, metric := range regexp.MustCompile("`coredns_[^`]+`").FindAllString(text, -1) {
		if !strings.Contains(section(t, "Metrics"), metric) {
			t.Errorf("Expected %s in docs/corefile.md", metric)
		}
	}
	links := regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1)
	for _, m := range links {
		target, ok := strings.CutPrefix(m[1], repo[1]+"/blob/main/")
		file, anchor, _ := strings.Cut(target, "#")
		page := documents(t)[path.Clean(file)]
		if !ok || page == "" || anchor != "" && !slices.Contains(anchors(page), anchor) {
			t.Errorf("Expected a URL of a document of the repository, got %s", m[1])
		}
	}
	if len(links) < 3 || !strings.Contains(text, "\nsafebrowsing:"+strings.TrimPrefix(repo[1], "https://")+"\ncache:cache\n") {
		t.Error("Expected links to the documents, and the line of plugin.cfg before cache")
	}
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// protectedBlocks returns the server blocks of a Corefile that have the plugin. It opens no lists.
func protectedBlocks(path string) ([]serverBlock, error) {
	all, err := parseCorefile(path)
	return ours(all), err
}

// where says which files a command may edit.
type where struct {
	file     string        // of -file; "": the first one of the Corefile
	corefile string        // "": there is none
	blocks   []serverBlock // that have the plugin
}

func whereOf(c *cli.Command) (w where, err error) {
	w = where{file: c.String("file"), corefile: corefileOf(c)}
	if w.corefile == "" {
		if w.file == "" {
			return w, errors.New("there is no Corefile here: use -corefile, or -file for the file to edit")
		}
		return w, nil
	}
	w.blocks, err = protectedBlocks(w.corefile)
	return w, err
}

// files returns the distinct files of allow or of block, in the order of the Corefile.
func (w where) files(allow bool) (all []ownlist.Config) {
	for _, b := range w.blocks {
		for _, f := range b.Files(allow) {
			if !slices.ContainsFunc(all, func(c ownlist.Config) bool { return c.Path == f.Path }) {
				all = append(all, f)
			}
		}
	}
	return all
}

// pick returns the file to edit.
func (w where) pick(allow bool) (ownlist.Config, error) {
	word, other := ownWord(allow), ownWord(!allow)
	if w.file == "" {
		if files := w.files(allow); len(files) > 0 {
			return files[0], nil
		}
		return ownlist.Config{}, fmt.Errorf("%s has no file of %s: add the line \"%s /etc/coredns/%s.txt\" to the braces of %s at %s, create that file, and restart CoreDNS",
			w.corefile, word, word, word, say.Plugin, w.blocks[0].stanza())
	}
	for _, f := range slices.Concat(w.files(allow), w.files(!allow)) {
		switch {
		case !config.SameFile(f.Path, w.file):
		case f.Allow == allow:
			return f, nil
		default:
			return f, fmt.Errorf("%s is a file of %s in %s: use safebrowsing %s, or another file", w.file, other, w.corefile, other)
		}
	}
	if dir := filepath.Dir(w.file); !exists(dir) {
		return ownlist.Config{}, fmt.Errorf("there is no folder %s", dir)
	}
	return ownlist.Config{Path: w.file, Allow: allow}, nil
}

// complainOfUse prints which server blocks do not use a file, and for which hosts an edit of
// it does not do what the user wants. It reports whether there is such a host.
func (e *ownEdit) complainOfUse(file ownlist.Config, changes []block.Change) (bad bool) {
	if e.corefile == "" {
		e.complain("there is no Corefile here, so it is not known whether CoreDNS reads %s: use -corefile", file.Path)
		return false
	}
	var without []string
	for _, b := range e.blocks {
		if !b.Reads(file.Path, e.Allow) {
			without = append(without, b.stanza())
			continue
		}
		for _, c := range changes {
			if why := b.otherwise(c); why != "" {
				e.complain("%s: %s", b.stanza(), why)
				bad = true
			}
		}
	}
	switch {
	case len(without) == len(e.blocks):
		e.complain("CoreDNS does not read %s: no server block of %s has the line \"%s %s\"", file.Path, e.corefile, ownWord(e.Allow), file.Path)
		return true
	case len(without) > 0:
		e.complain("%s is not read by the server %s at %s", file.Path, say.Plural(len(without), "block", "blocks"), strings.Join(without, ", "))
	}
	return bad
}

// otherwise says why the server block does not do what a change asks for; "" if it does.
func (b *serverBlock) otherwise(c block.Change) string {
	if !b.InScope(c.Host.String()+".") && !c.Remove {
		return fmt.Sprintf("%s is not checked: it is in no zone of this server block, or in one of its exceptions", c.Host)
	}
	now := block.New(b.Config) // with the own lists as they are after the edit
	if now.ReadOwn() != nil {
		return "" // CoreDNS will say so
	}
	defer now.End()
	return now.Otherwise(c)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

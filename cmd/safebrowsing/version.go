package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version of this program, of CoreDNS and of Go",
		Description: `Prints the versions that this program was built from. It prints the git revision
if it was built in a git checkout; "modified" means that files had been changed.

   safebrowsing version
   safebrowsing version -json | jq -r .coredns`,
		Flags: []cli.Flag{jsonFlag()},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return fmt.Errorf("version takes no argument such as %q, see safebrowsing version -h", c.Args().First())
			}
			return printVersion(newConsole(c))
		},
	}
}

// build says from which versions the program was built, in JSON.
type build struct {
	Version  string `json:"version"`
	CoreDNS  string `json:"coredns"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Revision string `json:"revision"` // of git; "": not built in a checkout
	Modified bool   `json:"modified"` // files differed from the revision
}

func printVersion(out *console) error {
	info, _ := debug.ReadBuildInfo()
	b := buildOf(info)
	if out.json {
		out.object(b)
	} else {
		out.printf("%s\n", b)
	}
	return out.end(false)
}

// buildOf returns the build from the information that Go embeds in a program. info may be
// nil.
func buildOf(info *debug.BuildInfo) build {
	b := build{Version: say.Version, CoreDNS: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return b
	}
	for _, m := range info.Deps {
		if m.Path != "github.com/coredns/coredns" {
			continue
		}
		if m.Replace != nil && m.Replace.Version != "" {
			m = m.Replace
		}
		b.CoreDNS = strings.TrimPrefix(m.Version, "v")
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the build in one line.
func (b build) String() string {
	line := fmt.Sprintf("safebrowsing %s, CoreDNS %s, %s %s", b.Version, b.CoreDNS, b.Go, b.Platform)
	if b.Revision != "" {
		line += ", revision " + b.Revision
	}
	if b.Modified {
		line += " (modified)"
	}
	return line
}

package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func expressions() *cli.Command {
	return &cli.Command{
		Name:            "expressions",
		Usage:           "print which expressions of names and URLs are looked up in the lists",
		ArgsUsage:       "NAME|URL...",
		HideHelpCommand: true, // "help" is a name like any other
		Description: `Prints for each argument the expressions and their SHA-256, which Safe Browsing
looks up in its lists, the exact one first. A name means the URL http://NAME/. An
expression with a path is marked: DNS sees only names, so the plugin never looks
it up. "-" reads from standard input, as in safebrowsing why.

   safebrowsing expressions www.example.com
   safebrowsing expressions -json 'https://example.com/a/b.html?q=1'
   safebrowsing expressions -rule webrisk a.b.example.co.uk

The exit status is 1 if an argument is not a name and not a URL.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "rule", Usage: "the `PROTOCOL` whose rule makes the expressions: " + dialectNames(), Value: protocol.DialectV5.Name},
			jsonFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			dialect, err := protocol.ParseDialect(c.String("rule"))
			if err != nil {
				return fmt.Errorf("-rule: %w", err)
			}
			if c.NArg() == 0 {
				return errors.New("expressions takes names or URLs, see safebrowsing expressions -h")
			}
			return printExpressions(ctx, newConsole(c), dialect.Rule, c.Args().Slice(), c.Root().Reader)
		},
	}
}

// expressed is the finding for one argument, in JSON.
type expressed struct {
	Input       text         `json:"input"`
	Host        text         `json:"host"`
	Expressions []expression `json:"expressions"`
}

type expression struct {
	Expression text   `json:"expression"`
	SHA256     string `json:"sha256"`
	DNS        bool   `json:"dns"`
}

// unreadable is the finding for an argument that is not a name and not a URL.
type unreadable struct {
	Input text `json:"input"`
	Error text `json:"error"`
}

func printExpressions(ctx context.Context, out *console, rule lookup.Rule, args []string, in io.Reader) error {
	bad, first := false, true
	err := eachName(ctx, args, in, func(arg string) {
		if !first && !out.json {
			out.printf("\n")
		}
		first = false
		u, err := lookup.ParseURL(arg)
		switch {
		case err != nil && out.json:
			out.object(unreadable{text(arg), text(err.Error())})
		case err != nil:
			out.printf("%s\n    error: %s\n", say.Shown(arg), say.Shown(err.Error()))
		case out.json:
			out.object(express(arg, u, rule))
		default:
			out.expressions(express(arg, u, rule))
		}
		bad = bad || err != nil
	})
	if err != nil {
		return err
	}
	return out.end(bad)
}

// express returns the expressions of one argument.
func express(arg string, u lookup.URL, rule lookup.Rule) expressed {
	e := expressed{Input: text(arg), Host: text(u.Host().String()), Expressions: []expression{}}
	for _, x := range u.Expressions(rule) {
		hash := lookup.HashExpression(x.Text)
		e.Expressions = append(e.Expressions, expression{text(x.Text), hex.EncodeToString(hash[:]), x.DNS})
	}
	return e
}

// expressions prints the expressions of one argument as text.
func (o *console) expressions(e expressed) {
	o.printf("%s\n", say.Shown(string(e.Input)))
	for _, x := range e.Expressions {
		note := ""
		if !x.DNS {
			note = "  (DNS cannot see it)"
		}
		o.printf("    %s  %s%s\n", x.SHA256, say.Shown(string(x.Expression)), note)
	}
}

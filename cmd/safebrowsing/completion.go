package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
)

// scripts holds one completion script for each shell, in a file with the shell's name.
//
//go:embed completion
var scripts embed.FS

// shells are the shells with a script.
var shells = []string{"bash", "zsh", "fish"}

func completion() *cli.Command {
	return &cli.Command{
		Name:            "completion",
		Usage:           "print a script that lets your shell complete commands and flags",
		ArgsUsage:       "bash|zsh|fish",
		HideHelpCommand: true,
		Description: `Add the line for your shell to its start-up file.

   source <(safebrowsing completion bash)      ~/.bashrc
   source <(safebrowsing completion zsh)       ~/.zshrc, after compinit
   safebrowsing completion fish | source       ~/.config/fish/config.fish`,
		Action: func(_ context.Context, c *cli.Command) error {
			if c.NArg() != 1 {
				return errors.New("completion takes the name of one shell: bash, zsh or fish")
			}
			shell := c.Args().First()
			script, err := scripts.ReadFile("completion/" + shell)
			if err != nil {
				return fmt.Errorf("there is no completion for %q, only for bash, zsh and fish", shell)
			}
			out := newConsole(c)
			out.printf("%s", script)
			return out.end(false)
		},
	}
}

// complete is the hidden command that the scripts call. Its arguments are the words of the
// command line, up to the word that the user is typing.
func complete() *cli.Command {
	return &cli.Command{
		Name: "__complete", Hidden: true, SkipFlagParsing: true, HideHelpCommand: true,
		Action: func(_ context.Context, c *cli.Command) error {
			out := newConsole(c)
			for _, x := range candidates(c.Root(), c.Args().Slice()) {
				out.printf("%s\t%s\n", x.word, x.usage)
			}
			return out.end(false)
		},
	}
}

// candidate is a possible completion of a word.
type candidate struct{ word, usage string }

// candidates returns the completions of the last word. It returns none for a file or a
// name: the shell completes those.
func candidates(root *cli.Command, words []string) (all []candidate) {
	if len(words) == 0 {
		return nil
	}
	before, last := words[:len(words)-1], words[len(words)-1]
	c := root
	if len(before) > 0 && root.Command(before[0]) != nil {
		c = root.Command(before[0])
	}
	switch {
	case slices.Contains(before, "--") || len(before) > 0 && takesValue(c, before[len(before)-1]):
		return nil
	case strings.HasPrefix(last, "-"):
		all = flagsOf(c, last)
	case len(before) == 0 || c.Name == "help" && len(before) == 1:
		for _, sub := range root.VisibleCommands() {
			all = append(all, candidate{sub.Name, sub.Usage})
		}
	case c.Name == "pause" && len(before) == 1:
		all = append(all, candidate{"off", "end the pause"})
	case c.Name == "completion" && len(before) == 1:
		for _, shell := range shells {
			all = append(all, candidate{shell, "print the script for " + shell})
		}
	}
	return slices.DeleteFunc(all, func(x candidate) bool { return !strings.HasPrefix(x.word, last) })
}

// flagsOf returns the flags of a command, with one or two dashes as the user typed them.
func flagsOf(c *cli.Command, written string) (all []candidate) {
	dashes := "-"
	if strings.HasPrefix(written, "--") {
		dashes = "--"
	}
	for _, flag := range c.VisibleFlags() {
		usage := ""
		if described, ok := flag.(cli.DocGenerationFlag); ok {
			usage = strings.ReplaceAll(described.GetUsage(), "`", "")
		}
		all = append(all, candidate{dashes + flag.Names()[0], usage})
	}
	return all
}

// takesValue reports whether a word is a flag whose value is the next word.
func takesValue(c *cli.Command, word string) bool {
	name := strings.TrimLeft(word, "-")
	return name != word && slices.ContainsFunc(c.Flags, func(flag cli.Flag) bool {
		described, ok := flag.(cli.DocGenerationFlag)
		return ok && described.TakesValue() && slices.Contains(flag.Names(), name)
	})
}

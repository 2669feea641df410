# The tasks of every day. "make" prints them; CONTRIBUTING.md says what a change needs.

GOLANGCI = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
TIME ?= 30s

.PHONY: help build test short lint fuzz bench man site release pages publish-check ci

help: ## print this
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

build: ## the programs, into the working directory
	go build -o . ./cmd/...

test: ## all tests; some minutes
	go test ./...
	go -C bench test ./...

short: ## the tests without those that take seconds
	go test -short ./...
	go -C bench test -short ./...

lint: ## golangci-lint, see .golangci.yml; the first time it is built, which takes minutes
	go run $(GOLANGCI) run ./...
	go -C bench run $(GOLANGCI) run ./...

fuzz: ## every fuzz target for TIME (30s): make fuzz TIME=5m
	TIME=$(TIME) .ci/fuzz

bench: ## what the plugin costs in the real server, see bench/README.md; under 5 minutes
	go -C bench run .

man: ## the manual pages of docs, into deploy/man; needs pandoc
	deploy/man/build

site: ## the web site of README and docs, into site; needs pandoc
	deploy/site/build

release: ## all files of a release, into dist; needs pandoc: make release VERSION=v1.2.3
	deploy/man/build
	go -C deploy/release run . $(VERSION)

pages: ## the web site, and repositories for apt, dnf and opkg of what is in dist, into site; see deploy/pages/build
	deploy/site/build
	deploy/pages/build dist site

publish-check: ## what is missing before a release: make publish-check VERSION=v1.2.3
	go -C deploy/release run . -publish-check $(VERSION)

ci: ## all that must pass before a change lands; about 12 minutes, on Debian
	.ci/run

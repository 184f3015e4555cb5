// Command ottla is Kafka at a terminal: see `ottla help`.
package main

import (
	"context"
	"os"

	"github.com/ottla/ottla/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

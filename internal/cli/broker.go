package cli

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/ottlatest"
)

// What one process can hold.
const (
	mostBrokers           = 1000
	mostDefaultPartitions = 10_000
)

func brokerCommand(a *app) *cobra.Command {
	cfg := ottlatest.Config{AutoCreate: true}
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run a Kafka cluster in memory, for trying things out",
		Long: "Run a Kafka cluster in memory, for trying things out.\n\n" +
			"It speaks Kafka's protocol on 127.0.0.1 and forgets everything when it ends. It prints one line that\n" +
			"begins with `bootstrap: ` when it is ready, and runs until a signal.",
		Example: "  ottla broker --port 0 & sleep 1; kill $!\n  ottla broker --brokers 3 --port 0 & sleep 1; kill $!",
		Args:    takes(),
		RunE: func(*cobra.Command, []string) error {
			if cfg.Brokers < 1 || cfg.Brokers > mostBrokers {
				return usagef("--brokers %d: 1 to %d", cfg.Brokers, mostBrokers)
			}
			if cfg.Port < 0 || cfg.Port+cfg.Brokers-1 > math.MaxUint16 {
				return usagef("--port %d: ports %d to %d do not exist; 0 takes free ones", cfg.Port, cfg.Port, cfg.Port+cfg.Brokers-1)
			}
			if cfg.DefaultPartitions < 1 || cfg.DefaultPartitions > mostDefaultPartitions {
				return usagef("--partitions %d: 1 to %d", cfg.DefaultPartitions, mostDefaultPartitions)
			}
			a.endsBySignal = true
			return runBroker(a, cfg)
		},
	}
	cmd.Flags().IntVar(&cfg.Brokers, "brokers", 1, "how many brokers")
	cmd.Flags().IntVar(&cfg.Port, "port", 9092, "port of the first broker, the others take those above; 0 takes free ones")
	cmd.Flags().IntVar(&cfg.DefaultPartitions, "partitions", 1, "partitions of topics that are made without a number")
	return cmd
}

// runBroker serves until the first signal.
func runBroker(a *app, cfg ottlatest.Config) error {
	c, err := ottlatest.Start(cfg)
	if err != nil {
		if cfg.Port != 0 {
			return advise(err, "--port 0 takes free ports")
		}
		return err
	}
	defer c.Close()
	if err := a.stdout.printf("bootstrap: %s", strings.Join(c.Bootstrap(), ",")); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if err := a.stdout.flush(); err != nil {
		return err
	}
	<-a.stop.Done()
	return nil
}

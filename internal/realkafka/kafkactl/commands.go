package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ottla/ottla/internal/realkafka"
)

// commands are the words of the program.
func commands() map[string]command {
	return map[string]command{
		"up":     {up: true, run: up},
		"env":    {most: 1, run: env},
		"status": {run: status},
		"logs":   {most: 1, run: logs},
		"kill":   {most: 1, need: 1, run: change((*realkafka.Cluster).Kill)},
		"pause":  {most: 1, need: 1, run: change((*realkafka.Cluster).Pause)},
		"resume": {most: 1, need: 1, run: change((*realkafka.Cluster).Resume)},
		"start":  {most: 1, need: 1, run: change(func(c *realkafka.Cluster, id int) error { return c.Restart(id) })},
		"down":   {most: 1, run: down},
		"fetch":  {most: 1, run: fetch},
		"tool":   {most: -1, need: 1, run: tool},
	}
}

func up(c *call) error {
	k, err := realkafka.Up(c.ctx, c.named(), c.flags.options, c.errOut)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "bootstrap: %s\n", k.Bootstrap())
	return nil
}

// env prints what a shell evaluates to reach the cluster.
func env(c *call) error {
	k, err := realkafka.Find(c.cluster(), c.errOut)
	if err != nil {
		return err
	}
	export := func(name, value string) { fmt.Fprintf(c.out, "export %s=%s\n", name, quote(value)) }
	export("OTTLA_BOOTSTRAP", k.Bootstrap())
	if !k.Secure() {
		return nil
	}
	export("OTTLA_BOOTSTRAP_TLS", k.Listener(realkafka.TLS))
	export("OTTLA_BOOTSTRAP_MTLS", k.Listener(realkafka.MTLS))
	export("OTTLA_BOOTSTRAP_SASL_PLAINTEXT", k.Listener(realkafka.SASLP))
	export("OTTLA_BOOTSTRAP_SASL_SSL", k.Listener(realkafka.SASLS))
	export("OTTLA_CA", k.Certs().CA)
	export("OTTLA_CERT", k.Certs().Cert)
	export("OTTLA_KEY", k.Certs().Key)
	export("OTTLA_USER", realkafka.Admin().Name)
	export("OTTLA_PASSWORD", realkafka.Admin().Password)
	return nil
}

// quote writes a value so that a shell reads it back.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func status(c *call) error {
	names := realkafka.Names()
	if c.flags.name != "" {
		names = []string{c.flags.name}
	}
	if len(names) == 0 {
		return errors.New("no cluster is up: scripts/kafka up starts one")
	}
	for _, name := range names {
		k, err := realkafka.Find(name, c.errOut)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s  Apache Kafka %s  bootstrap: %s\n", name, k.Version(), k.Bootstrap())
		for _, b := range k.Status() {
			fmt.Fprintf(c.out, "  broker %d  %s  %s", b.ID, b.Addr, b.State)
			if b.Pid > 0 {
				fmt.Fprintf(c.out, "  pid %d", b.Pid)
			}
			fmt.Fprintln(c.out)
		}
	}
	return nil
}

// logs prints the log of one broker, or of all.
func logs(c *call) error {
	k, err := realkafka.Find(c.named(), c.errOut)
	if err != nil {
		return err
	}
	var ids []int
	if len(c.args) == 0 {
		for _, b := range k.Status() {
			ids = append(ids, b.ID)
		}
	} else {
		id, err := c.broker()
		if err != nil {
			return err
		}
		if id < 1 || id > k.Brokers() {
			return fmt.Errorf("the cluster has no broker %d: its brokers are 1 to %d", id, k.Brokers())
		}
		ids = []int{id}
	}
	for _, id := range ids {
		if len(ids) > 1 {
			fmt.Fprintf(c.out, "== broker %d: %s\n", id, k.LogFile(id))
		}
		if err := copyFile(c.out, k.LogFile(id)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(to, f)
	return err
}

// change makes a command of something that is done to one broker.
func change(do func(*realkafka.Cluster, int) error) func(*call) error {
	return func(c *call) error {
		id, err := c.broker()
		if err != nil {
			return err
		}
		return realkafka.Change(c.ctx, c.named(), c.errOut, func(k *realkafka.Cluster) error { return do(k, id) })
	}
}

// down of a cluster that is not there is no failure: the end is the same.
func down(c *call) error {
	names := []string{c.cluster()}
	if c.flags.all {
		names = realkafka.Names()
	}
	for _, name := range names {
		err := realkafka.Down(c.ctx, name, c.errOut)
		if errors.Is(err, realkafka.ErrNoCluster) {
			fmt.Fprintf(c.errOut, "kafka: no cluster %q is up\n", name)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func fetch(c *call) error {
	release := ""
	if len(c.args) > 0 {
		release = c.args[0]
	}
	if err := realkafka.Fetch(c.ctx, release, c.errOut); err != nil || !c.flags.warm {
		return err
	}
	return realkafka.Warm(c.ctx, release, c.errOut)
}

func tool(c *call) error {
	k, err := realkafka.Find(c.named(), c.errOut)
	if err != nil {
		return err
	}
	cmd, err := k.ToolCommand(c.ctx, c.args[0], c.args[1:]...)
	if err != nil {
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.in, c.out, c.errOut
	return cmd.Run()
}

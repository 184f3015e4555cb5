package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/ottla/ottla/bench/load"
)

// pinned is a command on one core, the others' noise apart. Core -1 is any.
func pinned(ctx context.Context, core int, name string, args ...string) *exec.Cmd {
	if core >= 0 && canPin() {
		args = append([]string{"-c", fmt.Sprint(core), name}, args...)
		name = "taskset"
	}
	return exec.CommandContext(ctx, name, args...)
}

func canPin() bool {
	_, err := exec.LookPath("taskset")
	return err == nil && runtime.NumCPU() > 1
}

const clientCore, brokerCore = 0, 1

// canned starts the canned broker and returns its address. It ends with ctx.
func canned(ctx context.Context, bin string) (addr string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := pinned(ctx, brokerCore, bin, "broker")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return "", nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), func() { cancel(); _ = cmd.Wait() }, err
}

// measure does one job in a process of its own.
func measure(ctx context.Context, bin string, procs int, j load.Job) load.Result {
	arg, _ := json.Marshal(j)
	core := clientCore
	if procs > 1 {
		core = -1
	}
	cmd := pinned(ctx, core, bin, string(arg))
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", procs))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	r := load.Result{Job: j}
	if jsonErr := json.Unmarshal(out, &r); jsonErr != nil {
		text := stderr.String()
		r.Err = fmt.Sprintf("%v, %.300s", err, text)
	}
	return r
}

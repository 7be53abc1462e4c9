// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// suite is upstream's suite, ready to run against a cluster.
type suite struct {
	programs
	// env is added to its environment.
	env []string
	// flags follow those that all suites have.
	flags []string
	// processes is how many specs run in parallel. Specs marked Serial run alone.
	processes int
	// out is the directory for reports and logs.
	out string
}

// run runs the specs once and returns their results.
func (s suite) run(ctx context.Context, specs []string) ([]result, error) {
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(s.out, "ginkgo.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, s.ginkgo, s.arguments(specs)...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, log), io.MultiWriter(os.Stderr, log)
	// On an interrupt, the processes of the specs clean up, and ginkgo writes what they report. It does not pass the interrupt
	// on to them, so it goes to their process group, which is also killed if that takes too long.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 2 * time.Minute
	ran := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	report, err := readReport(filepath.Join(s.out, "report.json"))
	if err != nil {
		return nil, fmt.Errorf("the suite left no report: %w", errors.Join(ran, err))
	}
	if failed := failedSetup(report); failed != "" {
		return nil, fmt.Errorf("the suite did not begin: %s", failed)
	}
	return resultsOf(report, specs), s.writeFailures(report)
}

// arguments returns ginkgo's arguments and, after "--", the suite's.
func (s suite) arguments(specs []string) []string {
	return append([]string{
		"--procs=" + strconv.Itoa(s.processes),
		"--timeout=24h",
		"--no-color",
		"--silence-skips",
		"--focus=" + pattern(specs),
		"--output-dir=" + s.out,
		"--json-report=report.json",
		"--junit-report=junit.xml",
		s.suite,
		"--",
	}, s.flags...)
}

// clusterFlags are the flags of the suite of clusters.
func clusterFlags(kubeconfig, kubectl, out string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--kubectl-path=" + kubectl,
		"--provider=skeleton",
		"--dns-domain=cluster.local",
		"--num-nodes=-1",
		"--disable-log-dump",
		"--e2e-output-dir=" + out,
	}
}

// failedSetup returns why the suite ran nothing: its setup has failed.
func failedSetup(report types.Report) string {
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType.Is(types.NodeTypeBeforeSuite|types.NodeTypeSynchronizedBeforeSuite) && spec.Failed() {
			return firstLines(spec.FailureMessage())
		}
	}
	return ""
}

func readReport(file string) (types.Report, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return types.Report{}, err
	}
	var reports []types.Report
	if err := json.Unmarshal(content, &reports); err != nil {
		return types.Report{}, fmt.Errorf("%s: %w", file, err)
	}
	if len(reports) != 1 {
		return types.Report{}, fmt.Errorf("%s: %d reports instead of one", file, len(reports))
	}
	return reports[0], nil
}

// resultsOf returns the results of specs. A spec that is missing in the report, or was skipped, did
// not run.
func resultsOf(report types.Report, specs []string) []result {
	reported := map[string]types.SpecReport{}
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType == types.NodeTypeIt {
			reported[spec.FullText()] = spec
		}
	}
	results := make([]result, 0, len(specs))
	for _, name := range specs {
		results = append(results, resultOf(name, reported[name]))
	}
	return results
}

// ended is the message of a spec that was running when the run was ended.
const ended = "the run was ended"

func resultOf(name string, spec types.SpecReport) result {
	r := result{Spec: name, State: notRun, Seconds: spec.RunTime.Round(100 * time.Millisecond).Seconds()}
	switch {
	case spec.State.Is(types.SpecStatePassed):
		r.State = passed
	case spec.State.Is(types.SpecStateInterrupted | types.SpecStateAborted):
		r.Message = ended
	case spec.State.Is(types.SpecStateFailureStates):
		r.State = failed
		r.Message = firstLines(spec.FailureMessage())
	default:
		r.Message = firstLines(spec.Failure.Message)
	}
	return r
}

// ownDirs matches the directories of this machine in which a run has its files.
var ownDirs = sync.OnceValue(func() *regexp.Regexp {
	dirs := []string{regexp.QuoteMeta(os.TempDir())}
	for _, find := range []func() (string, error){os.Getwd, os.UserHomeDir} {
		if dir, err := find(); err == nil {
			dirs = append(dirs, regexp.QuoteMeta(dir))
		}
	}
	return regexp.MustCompile(`(` + strings.Join(dirs, "|") + `)(/[\w.@+-]+)*/`)
})

// firstLines returns the beginning of a message on one line, without this machine's directories.
func firstLines(message string) string {
	const most = 250
	text := ownDirs().ReplaceAllString(strings.Join(strings.Fields(message), " "), "")
	return text[:min(len(text), most)]
}

// writeFailures writes the full output of each failed spec to a file of its own.
func (s suite) writeFailures(report types.Report) error {
	dir := filepath.Join(s.out, "failed")
	for i, spec := range report.SpecReports {
		if !spec.Failed() {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		text := spec.FullText() + "\n\n" + spec.FailureMessage() + "\n" + spec.FailureLocation().String() + "\n\n" +
			spec.CapturedGinkgoWriterOutput + spec.CapturedStdOutErr
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d-%s.log", i, fileName(spec.LeafNodeText))), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fileName makes a spec's text part of a file name.
func fileName(text string) string {
	const most = 60
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, text)
	return name[:min(len(name), most)]
}

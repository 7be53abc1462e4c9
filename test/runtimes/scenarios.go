// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// nodeScenarios are the scenarios whose result depends on the runtime.
var nodeScenarios = []string{
	"TestConfiguration", "TestSecurityContext", "TestResources", "TestPodFacts", "TestVolumesInUse",
	"TestRestartPolicies", "TestInitContainers", "TestProbes", "TestHooksAndTermination", "TestReadinessGates", "TestImagePull", "TestImageVolumes",
	"TestRestartOfAllContainers", "TestUserNamespace", "TestRecursiveReadOnlyMounts", "TestRuntimeClassWithCrun", "TestResize", "TestResizeOfInitContainers",
	"TestLogs", "TestExec", "TestAttach", "TestPortForward", "TestCopy",
	"TestNodeAPI", "TestMetricsOfRealPods", "TestStaticPods", "TestNodeAlone", "TestServiceTraffic", "TestEviction", "TestDebug", "TestRuntimeOfTheUser", "TestInterruptedStop",
}

// pattern returns the regular expression that matches exactly these tests.
func pattern(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

// result is the result of one scenario.
type result struct {
	action  string // pass, fail or skip
	elapsed time.Duration
}

// event is a line of test2json.
type event struct {
	Action, Test, Output string
	Elapsed              float64 // in seconds
}

// scenariosDir is where "go test" would run the scenarios.
const scenariosDir = "test/scenarios"

// compileScenarios compiles the scenarios, once for all runtimes.
func compileScenarios(ctx context.Context) (string, error) {
	program, err := filepath.Abs("test/runtimes/bin/scenarios.test")
	if err != nil {
		return "", err
	}
	return program, command(ctx, "go", "test", "-c", "-o", program, "./"+scenariosDir)
}

// runScenarios runs scenarios with additional variables, and returns the result of each by its name.
func runScenarios(ctx context.Context, program, pattern string, env []string, verbose bool) (map[string]result, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", program, "-test.v=test2json", "-test.timeout=20m", "-test.run="+pattern)
	cmd.Dir, cmd.Env, cmd.Stderr = scenariosDir, append(os.Environ(), env...), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, readErr := readResults(out, os.Stdout, verbose)
	runErr := cmd.Wait()
	if readErr != nil {
		return nil, readErr
	}
	// Scenarios that failed are in the results. A failure without one is that of the build or of the clusters' end.
	if runErr != nil && !anyFailed(results) {
		return nil, fmt.Errorf("the scenarios: %w", runErr)
	}
	return results, nil
}

func anyFailed(results map[string]result) bool {
	for _, r := range results {
		if r.action == "fail" {
			return true
		}
	}
	return false
}

// readResults reads the output of test2json. It prints the output of tests that fail, and all output that is not a
// test's.
func readResults(in io.Reader, out io.Writer, verbose bool) (map[string]result, error) {
	results, output := map[string]result{}, map[string]*strings.Builder{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(out, lines.Text())
			continue
		}
		test, _, isPart := strings.Cut(e.Test, "/")
		if output[test] == nil {
			output[test] = &strings.Builder{}
		}
		output[test].WriteString(e.Output)
		if e.Action != "pass" && e.Action != "fail" && e.Action != "skip" || isPart {
			continue
		}
		if e.Action == "fail" || verbose {
			fmt.Fprint(out, output[test])
		}
		if test != "" {
			results[test] = result{e.Action, time.Duration(e.Elapsed * float64(time.Second))}
		}
	}
	return results, lines.Err()
}

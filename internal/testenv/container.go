package testenv

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

//go:embed compose.yaml
var composeFile string

// A container is a server that runs as a compose project of its own.
type container struct {
	project string
	service string
	env     []string
}

// container does not look at the folder of the test: data stay in the container.
func (k Kind) container(o own) (node, error) {
	settings, err := k.config(o)
	if err != nil {
		return nil, err
	}
	return &container{
		project: fmt.Sprintf("gocap-%s-%d", k.service, o.port),
		service: k.service,
		env:     append(os.Environ(), fmt.Sprintf("GOCAP_PORT=%d", o.port), "GOCAP_SETTINGS="+settings),
	}, nil
}

// options writes settings as the arguments of a command.
func options(prefix string) func(o own) (string, error) {
	return func(o own) (string, error) {
		var args strings.Builder
		for _, setting := range o.settings {
			args.WriteString(" " + prefix + setting)
		}
		return args.String(), nil
	}
}

func (c *container) start() error {
	return c.compose("up", "--detach", "--no-recreate", c.service)
}

func (c *container) stop() error { return c.compose("stop", "--timeout", "30", c.service) }

func (c *container) kill() error { return c.compose("kill", "--signal", "KILL", c.service) }

func (c *container) remove() error {
	return c.compose("down", "--volumes", "--timeout", "0")
}

// dead is not asked of Docker, which would take a command for each look: a
// container that ends by itself shows as a server that does not answer in time.
func (c *container) dead() bool { return false }

func (c *container) log() string {
	out, err := c.command("logs", "--tail", "30").CombinedOutput()
	return string(out) + message(err)
}

func (c *container) hint() string {
	return "docker compose --project-name " + c.project + " down --volumes"
}

func (c *container) compose(args ...string) error {
	out, err := c.command(args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("docker compose %s: %w\n%s", args[0], err, out)
	}
	return nil
}

func (c *container) command(args ...string) *exec.Cmd {
	all := append([]string{"compose", "--project-name", c.project, "--file", "-"}, args...)
	cmd := exec.Command("docker", all...) //nolint:gosec // ours
	cmd.Env, cmd.Stdin = c.env, strings.NewReader(composeFile)
	return cmd
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// ComposeAnswers returns nil if docker compose is there and reaches Docker.
func ComposeAnswers() error {
	for _, args := range [][]string{{"compose", "version"}, {"info"}} {
		out, err := exec.Command("docker", args...).CombinedOutput() //nolint:gosec // constants
		if err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return fmt.Errorf("docker %s: %w %s", strings.Join(args, " "), err, lines[len(lines)-1])
		}
	}
	return nil
}

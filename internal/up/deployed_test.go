package up

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"gbatch/internal/conf"
)

// deployed is what the files for containers say of one container: the same whether compose or Kubernetes starts it.
type deployed struct {
	where, name string
	command     []string
}

// TestDeployedCommands: the daemons know every option that the compose file and Kubernetes' manifests give them, the
// configurations beside these are without a complaint and name the same hosts, and each service, volume, Secret and
// ConfigMap that is used is there.
func TestDeployedCommands(t *testing.T) {
	bin := programs(t)
	etc := filepath.Join("..", "..", "etc")
	compose, hosts := composed(t, filepath.Join(etc, "container", "compose.yaml"))
	kube := manifests(t, filepath.Join(etc, "kubernetes", "gbatch.yaml"))
	if len(compose) != 7 || len(kube) != 3 {
		t.Fatalf("%d services and %d pods with daemons, want 7 and 3", len(compose), len(kube))
	}
	for _, d := range append(compose, kube...) {
		if !slices.Contains([]string{"gctld", "gdbd", "gnoded"}, d.command[0]) {
			t.Errorf("%s: %s runs %q, which is no daemon", d.where, d.name, d.command)
			continue
		}
		args := slices.Clone(d.command[1:])
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "$(GBATCH_NAME)", "n1")
		}
		// Options are read from the left, and --help ends it.
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, d.command[0]), append(args, "--help")...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s: %q: %v\n%s", d.where, d.name, d.command, err, out)
		}
	}

	for path, want := range map[string]struct{ hosts, nodes []string }{
		filepath.Join(etc, "container", "gbatch.conf"):  {[]string{"ctl1", "ctl2", "ctl3"}, []string{"n1", "n2"}},
		filepath.Join(etc, "kubernetes", "gbatch.conf"): {[]string{"ctl-0", "ctl-1", "ctl-2"}, nil},
	} {
		cfg, problems := conf.LoadFile(path)
		for _, p := range problems {
			if p.Severity != conf.Note {
				t.Errorf("%s", p)
			}
		}
		if cfg == nil {
			continue
		}
		var names []string
		for _, c := range cfg.Controllers {
			names = append(names, c.Name)
		}
		if !slices.Equal(names, want.hosts) {
			t.Errorf("%s has the controllers %q, want %q", path, names, want.hosts)
		}
		if want.nodes == nil {
			continue
		}
		for _, n := range cfg.Nodes {
			if !slices.Contains(want.nodes, n.Name) || !slices.Contains(hosts, n.Name) {
				t.Errorf("%s has the node %s, which the compose file lacks", path, n.Name)
			}
		}
		for _, h := range append(names, "dbd", "login") {
			if !slices.Contains(hosts, h) {
				t.Errorf("%s: the compose file has no host %s", path, h)
			}
		}
	}
}

// composed reads a compose file: its daemons, and the names of its hosts.
func composed(t *testing.T, path string) (out []deployed, hosts []string) {
	t.Helper()
	type service struct {
		Image, Hostname string
		Command         []string
		Environment     map[string]string
		Volumes         []string
		DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
		Entrypoint      []string
	}
	var file struct {
		Services map[string]service
		Volumes  map[string]any
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	kept := map[string]bool{}
	for name, s := range file.Services {
		for _, v := range s.Volumes {
			from, to, ok := strings.Cut(v, ":")
			if strings.HasPrefix(from, "./") {
				if _, err := os.Stat(filepath.Join(filepath.Dir(path), from)); err != nil {
					t.Errorf("%s: %s: %v", path, name, err)
				}
			} else if _, there := file.Volumes[from]; !there || !ok {
				t.Errorf("%s: %s uses the volume %q, which the file lacks", path, name, v)
			}
			if to == "/var/lib/gbatch" && kept[from] {
				t.Errorf("%s: two hosts keep their state in the volume %s", path, from)
			} else if to == "/var/lib/gbatch" {
				kept[from] = true
			}
		}
		for on := range s.DependsOn {
			if _, there := file.Services[on]; !there {
				t.Errorf("%s: %s waits for %s, which the file lacks", path, name, on)
			}
		}
		if s.Entrypoint != nil {
			continue // it makes the certificates
		}
		if s.Hostname != name {
			t.Errorf("%s: the service %s has the host name %q", path, name, s.Hostname)
		}
		hosts = append(hosts, name)
		out = append(out, deployed{path, name, s.Command})
	}
	// Each host has a certificate, for the role that it has.
	for _, d := range out {
		role := map[string]string{"gctld": "ctld", "gdbd": "dbd", "gnoded": "node"}[d.command[0]]
		if slices.Contains(d.command, "--login") {
			role = "login"
		}
		if want := role + ":" + d.name; !slices.Contains(file.Services["certificates"].Command, want) {
			t.Errorf("%s: nobody makes the certificate %s", path, want)
		}
	}
	return out, hosts
}

// manifests reads Kubernetes' manifests: the pods of daemons.
func manifests(t *testing.T, path string) []deployed {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(filepath.Dir(path), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	type named struct{ Name string }
	type object struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name, Namespace string }
		Spec       struct {
			ServiceName string `yaml:"serviceName"`
			Selector    any
			Template    struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct {
					Containers []struct {
						Args         []string
						Env          []struct{ Name, Value string }
						VolumeMounts []named `yaml:"volumeMounts"`
					}
					Volumes []struct {
						Name   string
						Secret struct {
							SecretName string `yaml:"secretName"`
						}
						ConfigMap             named `yaml:"configMap"`
						PersistentVolumeClaim struct {
							ClaimName string `yaml:"claimName"`
						} `yaml:"persistentVolumeClaim"`
					}
				}
			}
			VolumeClaimTemplates []struct{ Metadata named } `yaml:"volumeClaimTemplates"`
		}
	}
	there := map[string]bool{}
	var objects []object
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o object
		err := dec.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if o.APIVersion == "" || o.Metadata.Name == "" || o.Kind != "Namespace" && o.Metadata.Namespace != "gbatch" {
			t.Errorf("%s: an object of kind %s without apiVersion, name or namespace", path, o.Kind)
		}
		there[o.Kind+" "+o.Metadata.Name] = true
		objects = append(objects, o)
	}
	var out []deployed
	for _, o := range objects {
		pod := o.Spec.Template.Spec
		volumes := map[string]bool{}
		for _, v := range pod.Volumes {
			volumes[v.Name] = true
			for kind, name := range map[string]string{"secret generic": v.Secret.SecretName, "configmap": v.ConfigMap.Name} {
				if name != "" && !strings.Contains(string(readme), "create "+kind+" "+name+" ") {
					t.Errorf("README.md does not say how to make the %s %s of %s", kind, name, o.Metadata.Name)
				}
			}
			if c := v.PersistentVolumeClaim.ClaimName; c != "" && !there["PersistentVolumeClaim "+c] {
				t.Errorf("%s: %s claims %s, which is not there", path, o.Metadata.Name, c)
			}
		}
		for _, v := range o.Spec.VolumeClaimTemplates {
			volumes[v.Metadata.Name] = true
		}
		if s := o.Spec.ServiceName; s != "" && !there["Service "+s] {
			t.Errorf("%s: %s names the Service %s, which is not there", path, o.Metadata.Name, s)
		}
		for _, c := range pod.Containers {
			d := deployed{path, o.Kind + " " + o.Metadata.Name, c.Args}
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("%s: %s mounts %s, which is not there", path, d.name, m.Name)
				}
			}
			out = append(out, d)
		}
	}
	return out
}

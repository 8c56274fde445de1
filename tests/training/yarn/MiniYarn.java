import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.registry.client.api.RegistryConstants;
import org.apache.hadoop.registry.server.services.MicroZookeeperService;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ApplicationReport;
import org.apache.hadoop.yarn.api.records.LocalResource;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.api.records.NodeState;
import org.apache.hadoop.yarn.client.api.YarnClient;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.service.api.records.Service;
import org.apache.hadoop.yarn.service.client.ServiceClient;
import org.apache.hadoop.yarn.service.utils.ServiceApiUtil;

/**
 * A YARN in one process until its standard input ends, in the current directory: java ... MiniYarn.java NODES.
 *
 * Says "ready", then answers each line with one: "submit FILE" (the application's id), "service NAME" (as the service
 * framework sees it, JSON), "destroy NAME", "application ID" (its state, its end, containers that it uses, and why),
 * "nodes used" (NODE=CONTAINERS of each that is there), "replace NUMBER" (a node manager ends, another one comes; of the
 * first ones that only their silence tells).
 */
public class MiniYarn {
  public static void main(String[] args) {
    try {
      new MiniYarn(Integer.parseInt(args[0])).serve();
      System.exit(0); // not before: its threads would hold it
    } catch (Throwable error) {
      error.printStackTrace();
      System.exit(1);
    }
  }

  final MiniYARNCluster cluster;
  final List<NodeManager> nodes = new ArrayList<>();
  final YarnConfiguration conf;

  MiniYarn(int many) throws Exception {
    File here = new File(".").getCanonicalFile();
    YarnConfiguration conf = new YarnConfiguration();
    MicroZookeeperService registry = new MicroZookeeperService("registry");
    registry.init(conf);
    registry.start();
    conf.set(RegistryConstants.KEY_REGISTRY_ZK_QUORUM, registry.getConnectionString());
    conf.set("yarn.application.admin.client.class.yarn-service", ServiceClient.class.getName());
    conf.set(RegistryConstants.KEY_DNS_DOMAIN, "spillway.test");
    conf.set("yarn.service.base.path", new File(here, "services").getPath());
    conf.set("yarn.service.am.java.opts", "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 --add-opens=java.base/java.lang=ALL-UNNAMED");
    conf.setInt("yarn.service.am-resource.memory", 512);
    conf.setInt(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, 64);
    conf.set(YarnConfiguration.NM_AUX_SERVICES, "");
    conf.setInt(YarnConfiguration.RM_NM_EXPIRY_INTERVAL_MS, 20000);
    conf.setBoolean(YarnConfiguration.NM_VMEM_CHECK_ENABLED, false);
    conf.setBoolean(YarnConfiguration.NM_PMEM_CHECK_ENABLED, false);
    conf.setInt(YarnConfiguration.NM_MAX_PER_DISK_UTILIZATION_PERCENTAGE, 100);
    cluster = new MiniYARNCluster("yarn", 1, many, 1, 1);
    cluster.init(conf);
    cluster.start();
    if (!cluster.waitForNodeManagersToConnect(60000)) throw new IllegalStateException("nodes do not register");
    YarnConfiguration made = new YarnConfiguration(cluster.getConfig());
    made.set(YarnConfiguration.YARN_APPLICATION_CLASSPATH, new File(here, "conf").getPath());
    try (FileOutputStream site = new FileOutputStream(new File(here, "conf/yarn-site.xml"))) {
      made.writeXml(site);
    }
    for (int number = 0; number < many; number++) nodes.add(cluster.getNodeManager(number));
    this.conf = made;
  }

  void serve() throws Exception {
    ServiceClient services = new ServiceClient() {
      @Override
      protected Path addJarResource(String name, Map<String, LocalResource> resources) {
        return null; // the class path of this process is the service masters', too
      }
    };
    YarnClient yarn = YarnClient.createYarnClient();
    services.init(conf);
    services.start();
    yarn.init(conf);
    yarn.start();
    System.out.println("ready");
    BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = asked.readLine()) != null; ) {
      String[] words = line.split(" ", 2);
      System.out.println(answer(services, yarn, words[0], words[1]).replaceAll("\\s+", " "));
    }
  }

  String answer(ServiceClient services, YarnClient yarn, String verb, String what) throws Exception {
    if (verb.equals("submit")) {
      Service service = ServiceApiUtil.jsonSerDeser.fromJson(Files.readString(java.nio.file.Path.of(what)));
      services.actionCreate(service);
      return service.getId();
    }
    if (verb.equals("destroy")) return Integer.toString(services.actionDestroy(what));
    if (verb.equals("nodes")) {
      List<NodeId> there = nodes.stream().map(node -> node.getNMContext().getNodeId()).toList();
      return yarn.getNodeReports(NodeState.RUNNING).stream().filter(node -> there.contains(node.getNodeId()))
          .map(node -> node.getNodeId() + "=" + node.getNumContainers()).collect(Collectors.joining(" "));
    }
    if (verb.equals("replace")) return replace(Integer.parseInt(what));
    if (verb.equals("service")) return ServiceApiUtil.jsonSerDeser.toJson(services.getStatus(what));
    ApplicationReport report = yarn.getApplicationReport(ApplicationId.fromString(what));
    int containers = report.getApplicationResourceUsageReport().getNumUsedContainers();
    return String.join(" ", report.getYarnApplicationState().name(), report.getFinalApplicationStatus().name(),
        Integer.toString(containers), report.getDiagnostics());
  }

  String replace(int number) {
    NodeManager old = nodes.get(number);
    String here = old.getNMContext().getNodeId().getHost();
    YarnConfiguration its = new YarnConfiguration(old.getConfig());
    old.stop();
    String tracker = YarnConfiguration.RM_RESOURCE_TRACKER_ADDRESS;
    its.set(tracker, cluster.getResourceManager().getConfig().get(tracker));
    its.set(YarnConfiguration.NM_ADDRESS, here + ":0");
    its.set(YarnConfiguration.NM_LOCALIZER_ADDRESS, here + ":0");
    its.set(YarnConfiguration.NM_COLLECTOR_SERVICE_ADDRESS, here + ":0");
    its.set(YarnConfiguration.NM_WEBAPP_ADDRESS, here + ":0");
    NodeManager made = new NodeManager();
    made.init(its);
    made.start();
    nodes.set(number, made);
    return made.getNMContext().getNodeId().toString();
  }
}

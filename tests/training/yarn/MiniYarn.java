import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.registry.client.api.RegistryConstants;
import org.apache.hadoop.registry.server.services.MicroZookeeperService;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ApplicationReport;
import org.apache.hadoop.yarn.api.records.LocalResource;
import org.apache.hadoop.yarn.client.api.YarnClient;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;
import org.apache.hadoop.yarn.service.api.records.Service;
import org.apache.hadoop.yarn.service.client.ServiceClient;
import org.apache.hadoop.yarn.service.utils.ServiceApiUtil;

/**
 * A YARN in one process until its standard input ends, in the current directory: java ... MiniYarn.java NODES.
 *
 * Says "ready", then answers each line with one: "submit FILE" (the application's id), "service NAME" (as the service
 * framework sees it, JSON), "application ID" (its state, its end, containers that it uses, and why).
 */
public class MiniYarn {
  public static void main(String[] args) {
    try {
      serve(start(Integer.parseInt(args[0])));
      System.exit(0); // not before: its threads would hold it
    } catch (Throwable error) {
      error.printStackTrace();
      System.exit(1);
    }
  }

  static YarnConfiguration start(int nodes) throws Exception {
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
    conf.setBoolean(YarnConfiguration.NM_VMEM_CHECK_ENABLED, false);
    conf.setBoolean(YarnConfiguration.NM_PMEM_CHECK_ENABLED, false);
    conf.setInt(YarnConfiguration.NM_MAX_PER_DISK_UTILIZATION_PERCENTAGE, 100);
    MiniYARNCluster cluster = new MiniYARNCluster("yarn", 1, nodes, 1, 1);
    cluster.init(conf);
    cluster.start();
    if (!cluster.waitForNodeManagersToConnect(60000)) throw new IllegalStateException("nodes do not register");
    YarnConfiguration made = new YarnConfiguration(cluster.getConfig());
    made.set(YarnConfiguration.YARN_APPLICATION_CLASSPATH, new File(here, "conf").getPath());
    try (FileOutputStream site = new FileOutputStream(new File(here, "conf/yarn-site.xml"))) {
      made.writeXml(site);
    }
    return made;
  }

  static void serve(YarnConfiguration conf) throws Exception {
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

  static String answer(ServiceClient services, YarnClient yarn, String verb, String what) throws Exception {
    if (verb.equals("submit")) {
      Service service = ServiceApiUtil.jsonSerDeser.fromJson(Files.readString(java.nio.file.Path.of(what)));
      services.actionCreate(service);
      return service.getId();
    }
    if (verb.equals("service")) return ServiceApiUtil.jsonSerDeser.toJson(services.getStatus(what));
    ApplicationReport report = yarn.getApplicationReport(ApplicationId.fromString(what));
    int containers = report.getApplicationResourceUsageReport().getNumUsedContainers();
    return String.join(" ", report.getYarnApplicationState().name(), report.getFinalApplicationStatus().name(),
        Integer.toString(containers), report.getDiagnostics());
  }
}

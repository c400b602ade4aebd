//! Real certificates for real servers, made by the `openssl` program: authorities, servers, clients.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::cluster::Cluster;
use crate::server_programs::ServerUser;

/// Runs openssl in a folder.
pub fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split_whitespace()).current_dir(folder).output();
    let output = output.expect("run openssl");
    assert!(output.status.success(), "openssl {arguments}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// An authority: `<name>.crt` and `<name>.key`. Its certificate may also serve, as a self-signed one.
pub fn authority(folder: &Path, name: &str, common_name: &str) {
    let subject = format!("-subj /CN={common_name}");
    openssl(
        folder,
        &format!("req -new -x509 -days 30 -nodes -newkey rsa:2048 -keyout {name}.key -out {name}.crt {subject}"),
    );
    close(&folder.join(format!("{name}.key")));
}

/// A certificate signed by an authority; `extensions` are lines of an extension file, none make a version 1.
pub fn signed(folder: &Path, name: &str, common_name: &str, authority: &str, extensions: &str) {
    openssl(
        folder,
        &format!("req -new -nodes -newkey rsa:2048 -keyout {name}.key -out {name}.csr -subj /CN={common_name}"),
    );
    let mut sign = format!(
        "x509 -req -days 30 -in {name}.csr -out {name}.crt -CA {authority}.crt -CAkey {authority}.key -CAcreateserial"
    );
    if !extensions.is_empty() {
        fs::write(folder.join(format!("{name}.ext")), extensions).expect("write extensions");
        sign += &format!(" -extfile {name}.ext");
    }
    openssl(folder, &sign);
    close(&folder.join(format!("{name}.key")));
}

/// Lets a server use a certificate from a folder, and clients of an authority of that folder.
pub fn serve(cluster: &Cluster, folder: &Path, name: &str, authority: &str) {
    let home = cluster.home();
    for (from, to) in [(format!("{name}.crt"), "server.crt"), (format!("{name}.key"), "server.key")]
        .into_iter()
        .chain([(format!("{authority}.crt"), "clients.crt")])
    {
        let path = home.join(to);
        let _ = fs::remove_file(&path);
        fs::copy(folder.join(from), &path).expect("copy a certificate");
        close(&path);
        ServerUser::find().own(&path);
    }
    let mut client = cluster.connect("postgres");
    for (setting, file) in
        [("ssl_cert_file", "server.crt"), ("ssl_key_file", "server.key"), ("ssl_ca_file", "clients.crt")]
    {
        let path = home.join(file);
        client.batch_execute(&format!("ALTER SYSTEM SET {setting} = '{}'", path.display())).expect("set a file");
    }
    client.batch_execute("ALTER SYSTEM SET ssl = on").expect("set ssl");
    client.batch_execute("SELECT pg_reload_conf()").expect("reload");
    drop(client);
    let fingerprint = fs::read_to_string(home.join("server.crt")).expect("the certificate");
    crate::eventually("the server shows its new certificate", || {
        shown(cluster).is_some_and(|own| fingerprint.contains(&own))
    });
}

/// The body of the certificate that a server shows now.
fn shown(cluster: &Cluster) -> Option<String> {
    let place = format!("127.0.0.1:{}", cluster.server().port);
    let mut command = Command::new("openssl");
    command.args(["s_client", "-starttls", "postgres", "-connect", &place]).stdin(std::process::Stdio::null());
    let text = String::from_utf8_lossy(&command.output().ok()?.stdout).into_owned();
    let body = text.split("-----BEGIN CERTIFICATE-----").nth(1)?;
    body.split("-----END CERTIFICATE-----").next().map(|body| body.trim().to_owned())
}

fn close(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("mode of a key");
}
